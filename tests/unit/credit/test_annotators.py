"""Annotators in order: what they add, what they may not touch, deadlines, and how many groups each has in hand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turnwise.core.errors import AnnotatorError, TrainingError
from turnwise.core.types import (
    Completion,
    Discarded,
    Draw,
    DropReason,
    FinishReason,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    TurnScores,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.credit.annotators import NamedAnnotator, run_annotators
from turnwise.credit.greedy_baseline import GreedyBaseline

TASK = Task(environment="e", prompt=(text_message("user", "q"),), payload={})
Annotate = Callable[[TrajectoryGroup], Awaitable[Any]]


def make_trajectory(member: int, token: int = 5, draw: int = 7) -> Trajectory:
    completion = Completion(
        token_ids=to_ids([token]),
        logprobs=to_floats([-1]),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
    )
    turn = Turn(parent=None, context_ids=to_ids([1, 2]), completion=completion, message=text_message("assistant", ""))
    return Trajectory(
        id=TrajectoryId(draw=draw, member=member),
        task_id=TASK.id,
        turns=(turn,),
        stop=StopReason.DONE,
        reward=Scored(total=1.0),
    )


GROUP = TrajectoryGroup(draw=Draw(index=7, task=TASK), trajectories=(make_trajectory(0), make_trajectory(1)))


class Calls:
    """An annotator that is a function."""

    def __init__(self, function: Annotate) -> None:
        self._function = function

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        return await self._function(group)


def named(function: Annotate, *, name: str = "judge", timeout_s: float = 5.0, places: int = 1) -> NamedAnnotator:
    return NamedAnnotator(
        name=name, annotator=Calls(function), timeout_s=timeout_s, semaphore=asyncio.Semaphore(places)
    )


def run(*annotators: NamedAnnotator) -> tuple[TrajectoryGroup, dict[str, float]]:
    return asyncio.run(run_annotators(GROUP, annotators))


async def add_scores(group: TrajectoryGroup) -> TrajectoryGroup:
    def mark(trajectory: Trajectory) -> Trajectory:
        turns = tuple(
            replace(turn, scores=replace(turn.scores, process_score=(turn.scores.process_score or 0.0) + 1))
            for turn in trajectory.turns
        )
        return replace(trajectory, turns=turns)

    return replace(group, trajectories=tuple(map(mark, group.trajectories)))


def test_each_annotator_sees_what_the_one_before_it_added() -> None:
    async def double(group: TrajectoryGroup) -> TrajectoryGroup:
        (score,) = {turn.scores.process_score for t in group.trajectories for turn in t.turns}
        assert score == 1.0
        return await add_scores(group)

    group, seconds = run(named(add_scores, name="first"), named(double, name="second"))
    assert [t.turns[0].scores for t in group.trajectories] == [TurnScores(process_score=2.0)] * 2
    assert list(seconds) == ["first", "second"]
    assert all(0 <= value < 5 for value in seconds.values())
    assert run() == (GROUP, {})


def test_the_greedy_baseline_is_no_member() -> None:
    draws: list[Draw] = []
    attempt = make_trajectory(0, token=9)

    async def run_greedy(draw: Draw) -> Trajectory:
        draws.append(draw)
        return attempt

    baseline = GreedyBaseline(run_greedy=run_greedy)
    group, _ = run(NamedAnnotator(name="greedy", annotator=baseline, timeout_s=5, semaphore=asyncio.Semaphore(1)))
    assert group.baseline is attempt
    assert group.trajectories is GROUP.trajectories
    assert draws == [GROUP.draw]


def changed(**changes: Any) -> Annotate:
    async def annotate(group: TrajectoryGroup) -> TrajectoryGroup:
        return replace(group, **changes)

    return annotate


async def answer_nothing(group: TrajectoryGroup) -> None: ...


@pytest.mark.parametrize(
    ("annotate", "problem"),
    [
        (changed(draw=Draw(index=8, task=TASK)), "its draw is 8"),
        (changed(draw=replace(GROUP.draw, attempt=1)), "its draw is 7"),
        (changed(role="critic"), "its role was 'agent' and is 'critic'"),
        (changed(version=3), "its version was 0 and is 3"),
        (changed(trajectories=GROUP.trajectories[::-1]), "its members were 7/0, 7/1 and are 7/1, 7/0"),
        (changed(trajectories=GROUP.trajectories[:1]), "its members were 7/0, 7/1 and are 7/0"),
        (
            changed(trajectories=(make_trajectory(0), make_trajectory(1, token=6))),
            "the tokens of trajectory 7/1 differ",
        ),
        (
            changed(trajectories=(make_trajectory(0), replace(make_trajectory(1), turns=()))),
            "the tokens of trajectory 7/1 differ",
        ),
        (
            changed(discarded=(Discarded(trajectory=make_trajectory(2), reason=DropReason.RETRIED),)),
            "its discarded trajectories differ",
        ),
        (answer_nothing, "a NoneType"),
    ],
)
def test_another_group_is_refused(annotate: Annotate, problem: str) -> None:
    with pytest.raises(AnnotatorError) as raised:
        run(named(annotate))
    message = str(raised.value)
    assert message.startswith(f"annotator 'judge' of draw 7 (task {TASK.id}) returned another group: {problem}")
    assert message.endswith("return the group that was passed to it, changed with dataclasses.replace")


@pytest.mark.parametrize("error", [KeyError("score"), TrainingError("no loss"), TimeoutError("the judge's own")])
def test_what_an_annotator_raises_is_named(error: Exception) -> None:
    async def crash(group: TrajectoryGroup) -> TrajectoryGroup:
        raise error

    with pytest.raises(AnnotatorError, match=r"annotator 'judge' of draw 7 .* raised \w+: .*; fix it") as raised:
        run(named(crash))
    assert raised.value.__cause__ is error


def test_one_that_cancels_itself_is_named() -> None:
    async def give_up(group: TrajectoryGroup) -> TrajectoryGroup:
        raise asyncio.CancelledError

    with pytest.raises(AnnotatorError, match="cancelled itself"):
        run(named(give_up))


def test_one_that_hangs_and_ignores_its_cancellation_is_left_behind() -> None:
    released = asyncio.Event()

    async def hang(group: TrajectoryGroup) -> TrajectoryGroup:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return group

    async def play() -> None:
        annotator = named(hang, timeout_s=0.05)
        try:
            with pytest.raises(
                AnnotatorError, match=r"ran longer than 0.05 s; make it faster or raise rollout.trajectory_tim"
            ):
                async with asyncio.timeout(5):
                    await run_annotators(GROUP, [annotator])
            assert not annotator.semaphore.locked()  # the next group's turn
        finally:  # else the event loop waits for it
            released.set()
            await asyncio.sleep(0)

    asyncio.run(play())


def test_cancelling_the_run_cancels_the_work() -> None:
    ended: list[str] = []

    async def wait(group: TrajectoryGroup) -> TrajectoryGroup:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")
        return group

    async def play() -> None:
        task = asyncio.ensure_future(run_annotators(GROUP, [named(wait)]))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    asyncio.run(play())
    assert ended == ["cancelled"]


def test_each_annotator_has_its_own_limit_and_waiting_for_it_costs_no_deadline() -> None:
    active: list[int] = [0, 0]

    async def work(group: TrajectoryGroup) -> TrajectoryGroup:
        active[0] += 1
        active[1] = max(active)
        await asyncio.sleep(0.1)
        active[0] -= 1
        return group

    async def play() -> list[tuple[TrajectoryGroup, dict[str, float]]]:
        annotator = named(work, timeout_s=1.0, places=2)
        # 24 groups, two at a time: the last ones wait 11 * 0.1 = 1.1 s, and still have all of their second.
        return await asyncio.gather(*(run_annotators(GROUP, [annotator]) for _ in range(24)))

    results = asyncio.run(play())
    assert active == [0, 2]
    assert all(0.09 < seconds["judge"] < 1.0 for _, seconds in results)


def score_with(**scores: Any) -> Annotate:
    async def annotate(group: TrajectoryGroup) -> TrajectoryGroup:
        return replace(
            group,
            trajectories=tuple(
                replace(t, turns=tuple(replace(turn, scores=TurnScores(**scores)) for turn in t.turns))
                for t in group.trajectories
            ),
        )

    return annotate


@pytest.mark.parametrize("value", [math.nan, math.inf, "0.5", [0.5], np.zeros(2)])
def test_a_score_that_is_no_number_is_named_by_turn(value: object) -> None:
    with pytest.raises(AnnotatorError) as raised:
        run(named(score_with(process_score=value)))
    assert "annotator 'judge' of draw 7" in str(raised.value)
    assert "turn 0 of trajectory 7/0: process_score is" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_scores_of_numpy_become_plain_numbers() -> None:
    group, _ = run(named(score_with(process_score=np.float32(0.5))))
    score = group.trajectories[0].turns[0].scores.process_score
    assert (score, type(score)) == (0.5, float)


def test_an_annotator_may_be_a_plain_function() -> None:
    class Plain:
        def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
            return replace(group, version=group.version)

    async def ignore(group: TrajectoryGroup) -> TrajectoryGroup:
        return group

    assert run(replace(named(ignore), annotator=Plain()))[0].draw == GROUP.draw  # type: ignore[arg-type]


def test_a_reward_that_an_annotator_spoils_is_named() -> None:
    async def annotate(group: TrajectoryGroup) -> TrajectoryGroup:
        spoilt = tuple(replace(t, reward=Scored(total=math.nan)) for t in group.trajectories)
        return replace(group, trajectories=spoilt)

    with pytest.raises(AnnotatorError, match="trajectory 7/0: the reward is nan"):
        run(named(annotate))
