"""Judges asked from rollout processes: one account, one cache, the reasons of failures, and no slot held."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import turnwise as tw
from turnwise.config.load import load_config
from turnwise.core.judging import EpisodeJudges, NoVerdict
from turnwise.core.messages import text_message
from turnwise.core.types import Invalid
from turnwise.core.verdicts import Question, Usage, Verdict
from turnwise.judging.limits import LimitedJudge
from turnwise.judging.table import FunctionJudge
from turnwise.pictures.store import PictureStore
from turnwise.remote.judges import DistantJudge, answer_question
from turnwise.runs.judges import build_judges, list_distant, list_near, refuse_model
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder

HERE = Path(__file__).stem


def tell_process(question: Question) -> Verdict:
    """A judge that says in which process it is asked. It knows nothing of red."""
    text = question.messages[-1].text
    if "red" in text:
        raise NoVerdict("it is red", Usage(prompt_tokens=5))
    return Verdict(score=float(os.getpid()), usage=Usage(prompt_tokens=1_000_000))


class Sayer:
    """Says a word; the judge decides. Four tasks, so that its questions repeat."""

    def reset(self, seed: int) -> str:
        self.word = Random(seed % 4).choice(["red", "blue", "green", "grey"])
        return f"Say {self.word}."

    def say(self, text: str) -> str:
        """Say something.

        Args:
            text: What to say.
        """
        self.done = True
        return "said"

    async def get_reward(self, judges: EpisodeJudges) -> dict[str, float]:
        verdict = await judges.ask("teller", self.word)
        return {"reward": verdict.score, "asked_in": verdict.score, "played_in": float(os.getpid())}

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": "red"}


def recipe(*overrides: str) -> Any:
    given = [
        f"environment.name={HERE}:Sayer",
        f"judges.teller.kind={HERE}:tell_process",
        "judges.teller.prompt_price=0.5",
        "judges.teller.max_retries=0",
        "engine.max_context=96",
        "rollout.max_tokens=96",
        "rollout.max_turn_tokens=24",
        "rollout.tasks_per_step=4",
        "rollout.group_size=2",
        "rollout.max_retries=0",
        "rollout.max_invalid_share=1",
        "sft.steps=0",
        "train.steps=2",
        "evaluate.tasks=0",
    ]
    return load_config([], [*given, *overrides])


def test_the_training_process_judges_what_rollout_processes_play(tmp_path: Path) -> None:
    run = run_train(recipe("rollout.num_workers=2", f"run.output={tmp_path}"), resume=None, display=False)
    groups = [group for step in (1, 2) for group in tw.load_run(run).groups(step)]
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    attempts = [t for group in groups for t in group.trajectories]
    scored = [t for t in attempts if not isinstance(t.reward, Invalid)]
    assert {t.reward.part("asked_in") for t in scored} == {float(os.getpid())}  # type: ignore[union-attr]
    refused = [t.reward.reason for t in attempts if isinstance(t.reward, Invalid)]
    assert refused
    assert all("judge 'teller' gave no verdict: it is red" in reason for reason in refused)
    assert os.getpid() not in {t.reward.part("played_in") for t in scored}  # type: ignore[union-attr]
    # A word is paid for once, whichever process asks and in whichever step; the check at the start may have paid.
    asked = [t.judgements[0] for t in scored]
    paid = Counter(each.question.messages[-1].text for each in asked if each.usage.prompt_tokens)
    assert set(paid.values()) == {1}
    assert len(asked) > len(paid)
    assert sum(row["judge/teller_cost"] for row in rows) >= 0.5 * len(paid)


def test_judges_that_are_the_policy_stay_with_it() -> None:
    config = recipe(
        "judges.self.kind=policy",
        "judges.panel.kind=ensemble",
        "judges.panel.options.judges=['self','teller']",
        "judges.other.kind=ensemble",
        "judges.other.options.judges=['teller','second']",
        f"judges.second.kind={HERE}:tell_process",
    )
    engine: Any = None
    judges = build_judges(config, refuse_model, lambda: (engine, engine))
    assert list_distant(judges) == ["teller", "other", "second"]
    assert list_near(judges) == {"self", "panel", "teller"}


class Slot:
    """A slot that counts how often it is free."""

    def __init__(self) -> None:
        self.num_free = 0

    @contextmanager
    def free(self) -> Iterator[None]:
        self.num_free += 1
        yield


class Full(LimitedJudge):
    """A judge without a place."""

    @property
    def has_place(self) -> bool:
        return False


@pytest.mark.parametrize(("kind", "num_free"), [(LimitedJudge, 1), (Full, 0)])
def test_the_slot_of_an_episode_elsewhere_is_free_while_its_judge_has_a_place(kind: Any, num_free: int) -> None:
    judge = kind(FunctionJudge(tell_process, {}), name="teller", max_concurrent=1, timeout_s=60, max_retries=0, seed=0)
    slot = Slot()

    async def ask(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return await answer_question(fields, {"teller": judge}, slot)

    distant = DistantJudge("teller", ask, PictureStore(None))
    verdict = asyncio.run(distant.judge(Question(messages=(text_message("user", "blue"),))))
    assert (verdict.score, verdict.usage.prompt_tokens) == (os.getpid(), 1_000_000)
    with pytest.raises(NoVerdict, match="judge 'teller' gave no verdict: it is red") as caught:
        asyncio.run(distant.judge(Question(messages=(text_message("user", "red"),))))
    assert (caught.value.usage.attempts, caught.value.usage.prompt_tokens) == (1, 5)
    assert slot.num_free == 2 * num_free
