"""Measure whether judging holds up rollouts: trajectories per second without a judge, and with one that takes 300 ms.

    python benchmarks/judge_slots.py [--trajectories 200] [--rounds 3] [--slots 8] [--reply-ms 200] [--judge-ms 300]

The engine is a clock: it takes `--slots` requests at once and each `--reply-ms`, so that nothing but waiting is
measured. The arms take turns in one process: without a judge, with a judge that has places for all its questions, and
the same judge while its questions hold the slots of their episodes, as if it had no place.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turnwise.core.protocols import Environment
from turnwise.core.types import (
    Completion,
    Draw,
    Message,
    Reward,
    SamplingParams,
    Scored,
    Session,
    StopReason,
    Task,
    text_message,
)
from turnwise.core.verdicts import Question, Verdict
from turnwise.engines.scripted import ScriptedEngine
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.judging.limits import LimitedJudge
from turnwise.rollout.attempt import Sampling
from turnwise.rollout.limits import Limits
from turnwise.rollout.workers import FailurePolicy, RolloutWorker
from turnwise.testing import build_tiny_renderer, build_tiny_tokenizer

RENDERER = build_tiny_renderer(build_tiny_tokenizer(["a poem"]))
GROUP = 4


class Clock(ScriptedEngine):
    """An engine that takes a fixed time for each of so many requests at once."""

    def __init__(self, *, places: int, seconds: float) -> None:
        super().__init__(RENDERER, ["<answer> a poem </answer>"])
        self._gate, self._seconds = asyncio.Semaphore(places), seconds

    async def generate(self, prompt_ids: Any, params: SamplingParams, *, session: Session) -> Completion:
        """Wait for a place and for the time of a reply."""
        async with self._gate:
            await asyncio.sleep(self._seconds)
        return await super().generate(prompt_ids, params, session=session)


class SlowJudge:
    """A judge that takes a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def judge(self, question: Question) -> Verdict:
        """Wait, and find it fair."""
        await asyncio.sleep(self._seconds)
        return Verdict(score=0.5)

    async def close(self) -> None:
        """Do nothing."""


class Holding(LimitedJudge):
    """A judge whose questions hold the slots of their episodes."""

    @property
    def has_place(self) -> bool:
        """None, as far as anybody knows."""
        return False


class Poet(ToolEnvironment):
    """One reply; a judge decides if there is one."""

    is_judged = True

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """No tools."""
        return task.prompt, ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Ask the judge."""
        return Scored(total=(await self.judges.ask("grader", replies[-1].text)).score if self.is_judged else 0.5)


class Prose(Poet):
    """The same without a judge."""

    is_judged = False


async def play(arm: str, options: argparse.Namespace, *, first: int) -> float:
    """Play the trajectories of an arm. Returns trajectories per second."""
    kind = Holding if arm == "judge, slots held" else LimitedJudge
    judge = kind(
        SlowJudge(options.judge_ms / 1000),
        name="grader",
        max_concurrent=10**6,
        timeout_s=60.0,
        max_retries=0,
        seed=0,
    )

    def build(task: Task) -> Environment:
        return Prose() if arm == "no judge" else Poet()

    worker = RolloutWorker(
        build_environment=build,
        engine=Clock(places=options.slots, seconds=options.reply_ms / 1000),
        renderer=RENDERER,
        limits=Limits(max_turns=2, max_turn_tokens=60, max_tokens=400, timeout_s=600.0),
        sampling=Sampling(temperature=1.0, build_grammar=None, seed=0),
        failure=FailurePolicy(max_retries=0, max_invalid_share=0.0),
        max_open=options.slots,
        judges={"grader": judge},
    )
    task = Task(environment="poet", prompt=(text_message("user", "a poem"),), payload={})
    draws = [Draw(index=first + number, task=task) for number in range(options.trajectories // GROUP)]
    started = time.perf_counter()
    groups = await worker.run_groups(draws, group_size=GROUP)
    seconds = time.perf_counter() - started
    worker.failure.check(groups)
    return len(draws) * GROUP / seconds


ARMS = ("no judge", "judge", "judge, slots held")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--reply-ms", type=float, default=200.0)
    parser.add_argument("--judge-ms", type=float, default=300.0)
    options = parser.parse_args()
    speeds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for number in range(options.rounds):
        for arm in ARMS:
            speeds[arm].append(asyncio.run(play(arm, options, first=number * options.trajectories)))
    base = np.array(speeds["no judge"])
    print("| arm | trajectories/s, each round | ratio to no judge, each round | mean ratio |\n|---|---|---|---|")
    for arm, each in speeds.items():
        ratios = np.array(each) / base
        shown = (", ".join(f"{value:.{digits}f}" for value in values) for values, digits in ((each, 1), (ratios, 2)))
        print(f"| {arm} | {' | '.join(shown)} | {ratios.mean():.2f} |")


if __name__ == "__main__":
    main()
