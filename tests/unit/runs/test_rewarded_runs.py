"""Whole runs whose training is rewarded by `[rewards]`."""

from pathlib import Path
from random import Random

import pytest

import turnwise as tw
from turnwise.building.checks import check_recipe
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.core.types import TrajectoryGroup
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder


class Sayer:
    """Says a word, and is never right."""

    def reset(self, seed: int) -> str:
        return f"Say {Random(seed).choice(['red', 'blue'])}."

    def say(self, text: str) -> str:
        """Say something.

        Args:
            text: What to say.
        """
        self.done = True
        return "said"

    def get_reward(self) -> float:
        return 0.0

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": "red"}


def by_member(group: TrajectoryGroup, step: float = 1.0) -> list[float]:
    return [step * t.id.member for t in group.trajectories]


GIVEN = [
    f"environment.name={Path(__file__).stem}:Sayer",
    "engine.max_context=96",
    "rollout.max_tokens=96",
    "rollout.max_turn_tokens=24",
    "rollout.tasks_per_step=2",
    "rollout.group_size=2",
    "sft.steps=2",
    "sft.num_demonstrations=8",
    "train.steps=2",
    "evaluate.tasks=4",
    "evaluate.controls={}",
    f"rewards.number.kind={Path(__file__).stem}:by_member",
    "rewards.number.options.step=2",
    "rewards.number.weight=0.25",
    "rewards.task.kind=task",
]


def test_a_run_trains_on_its_terms_and_reports_the_environment_s_reward(tmp_path: Path) -> None:
    run = run_train(load_config([], [*GIVEN, f"run.output={tmp_path}"]), resume=None, display=False)
    loaded = tw.load_run(run)
    for step in (1, 2):
        groups = loaded.groups(step)
        assert [group.rewards() for group in groups] == [[0.0, 0.0]] * 2
        # weight 0.25 * step 2 * member 1, and the environment's 0
        assert [group.credited_rewards() for group in groups] == [[0.0, 0.5]] * 2
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    assert [row["rollout/reward"] for row in rows] == [0.0, 0.0]
    assert [row["term/number"] for row in rows] == [1.0, 1.0]
    assert [row["term/number_contribution"] for row in rows] == [0.25, 0.25]
    # Every group has a signal: without the terms all rewards are equal, and nothing trains.
    assert all(row["train/trained_tokens"] > 0 for row in rows)
    assert audit_run(run).breaches == []


@pytest.mark.parametrize("method", ["remax", "vine", "tree"])
def test_credit_that_compares_with_unscored_attempts_is_refused(method: str) -> None:
    with pytest.raises(ConfigError, match=r"rewards\.number, rewards\.task would not score"):
        check_recipe(load_config([], [*GIVEN, f"credit.method={method}"]))
