"""Whole runs that a judge's labels or its budget end."""

import json
from pathlib import Path
from random import Random

import pytest

from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.judging import EpisodeJudges
from turnwise.core.verdicts import Question, Usage, Verdict
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder


def pay(question: Question) -> Verdict:
    """A judge that reads a million tokens for each question, and likes every text."""
    return Verdict(score=1.0, usage=Usage(prompt_tokens=1_000_000))


class Sayer:
    """Says a word; the judge decides."""

    def reset(self, seed: int) -> str:
        self.number, self.said = seed, ""
        return f"Say {Random(seed).choice(['red', 'blue'])}."

    def say(self, text: str) -> str:
        """Say something.

        Args:
            text: What to say.
        """
        self.said, self.done = text, True
        return "said"

    async def get_reward(self, judges: EpisodeJudges) -> float:
        return (await judges.ask("payer", f"{self.number}: {self.said}")).score

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": "red"}


def run(folder: Path, *overrides: str) -> Path:
    given = [
        "environment.name=test_judged_runs:Sayer",
        "judges.payer.kind=test_judged_runs:pay",
        "judges.payer.prompt_price=0.5",
        "engine.max_context=96",
        "rollout.max_tokens=96",
        "rollout.max_turn_tokens=24",
        "rollout.tasks_per_step=2",
        "rollout.group_size=2",
        "rollout.max_retries=0",
        "sft.steps=2",
        "sft.num_demonstrations=8",
        "train.steps=2",
        "evaluate.tasks=0",
        f"run.output={folder}",
    ]
    return run_train(load_config([], [*given, *overrides]), resume=None, display=False)


def test_a_spent_budget_ends_the_run_in_one_line_that_names_it(tmp_path: Path) -> None:
    # The warm-up's 8 demonstrations are asked about too, at 0.5 each; equal ones are free.
    with pytest.raises(
        EnvironmentFault, match=r"judge 'payer' has cost 7, and judges\.payer\.budget=7 is spent; raise"
    ):
        run(tmp_path, "judges.payer.budget=7", "judges.payer.max_concurrent=1", "train.steps=40")
    [folder] = tmp_path.iterdir()
    errors = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert "budget=7 is spent" in errors[-1]["text"]
    done = sum(row["judge/payer_cost"] for row in RunFolder.open(folder).read_metrics() if row["phase"] == "train")
    assert 0 < done <= 7


def test_a_judge_below_its_least_agreement_leaves_no_run(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps({"text": str(number), "label": number % 2}) + "\n" for number in range(10)))
    with pytest.raises(ConfigError, match=r"kappa 0\.00 .* below judges\.payer\.min_kappa=0\.5; use a"):
        run(tmp_path / "runs", f"judges.payer.labels={labels}", "judges.payer.min_kappa=0.5")
    assert not [*(tmp_path / "runs").glob("*")]
