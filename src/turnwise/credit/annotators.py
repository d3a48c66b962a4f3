"""Runs annotators in order, each with a deadline and a concurrency limit; each must return the same group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.core.errors import AnnotatorError, EnvironmentFault
from turnwise.core.holding import named as watched
from turnwise.core.protocols import Annotator
from turnwise.core.returned import read_reward, read_scores
from turnwise.core.threads import run_method
from turnwise.core.types import NO_SCORES, Invalid, Trajectory, TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAnnotator:
    """An annotator and its limits."""

    name: str
    """Name in messages and metrics; unique in a run."""
    annotator: Annotator
    timeout_s: float
    """Most seconds for one group, counted from its turn."""
    semaphore: asyncio.Semaphore
    """Limits how many groups it works on at once; shared by all groups of a run."""


async def run_annotators(
    group: TrajectoryGroup, annotators: Sequence[NamedAnnotator]
) -> tuple[TrajectoryGroup, dict[str, float]]:
    """Return the annotated group, and the seconds that each annotator took (without the wait for its turn), by name.

    Raises AnnotatorError naming annotator, draw and remedy: it raised, ran past its deadline (it is cancelled and not
    waited for), or returned something other than the same group with additions.
    """
    seconds: dict[str, float] = {}
    for named in annotators:
        # Every holder releases its place by its deadline, so this wait ends.
        async with named.semaphore:
            started = time.perf_counter()
            annotated = await _annotate(named, group)
            seconds[named.name] = time.perf_counter() - started
        where = f"annotator {named.name!r} of draw {group.draw.index} (task {group.task.id})"
        problem = _find_difference(group, annotated)
        if problem:
            raise AnnotatorError(
                f"{where} returned another group: {problem}; return the group that was passed to it, changed with "
                "dataclasses.replace"
            )
        try:
            group = annotated if annotated.trajectories is group.trajectories else _read_numbers(annotated)
        except EnvironmentFault as fault:
            raise AnnotatorError(f"{where}: {fault}") from None
    return group, seconds


async def _annotate(named: NamedAnnotator, group: TrajectoryGroup) -> TrajectoryGroup:
    where = f"annotator {named.name!r} of draw {group.draw.index} (task {group.task.id})"
    work = asyncio.ensure_future(watched(where, run_method(named.annotator.annotate, group)))
    try:
        # Unlike asyncio.timeout, this does not wait for work that ignores its cancellation.
        await asyncio.wait({work}, timeout=named.timeout_s)
    finally:
        work.cancel()
    if not work.done():
        raise AnnotatorError(
            f"{where} ran longer than {named.timeout_s:g} s; make it faster or raise rollout.trajectory_timeout_s"
        )
    if work.cancelled():
        raise AnnotatorError(f"{where} cancelled itself; let it raise the original error instead")
    cause = work.exception()
    if cause is not None:
        raise AnnotatorError(
            f"{where} raised {type(cause).__name__}: {cause}; fix it, or remove it from the recipe"
        ) from cause
    result: TrajectoryGroup = work.result()
    return result


def _find_difference(before: TrajectoryGroup, after: object) -> str:
    """Return what an annotator changed although it must not: draw, role, version, members and their order, tokens.

    Empty if nothing.
    """
    if not isinstance(after, TrajectoryGroup):
        return f"a {type(after).__name__}"
    if before.draw != after.draw:
        return f"its draw is {after.draw.index} (task {after.draw.task.id})"
    for name in ("role", "version"):
        if getattr(before, name) != getattr(after, name):
            return f"its {name} was {getattr(before, name)!r} and is {getattr(after, name)!r}"
    members = [str(trajectory.id) for trajectory in before.trajectories]
    if members != [str(trajectory.id) for trajectory in after.trajectories]:
        return f"its members were {', '.join(members)} and are {', '.join(str(t.id) for t in after.trajectories)}"
    if [str(each.trajectory.id) for each in before.discarded] != [str(each.trajectory.id) for each in after.discarded]:
        return "its discarded trajectories differ"
    for old, new in zip(before.trajectories, after.trajectories, strict=True):
        if not _have_same_tokens(old, new):
            return f"the tokens of trajectory {old.id} differ"
    return ""


def _read_numbers(group: TrajectoryGroup) -> TrajectoryGroup:
    """Return the group with rewards and scores as plain numbers. Raises EnvironmentFault naming a value that is not a
    number."""
    return replace(group, trajectories=tuple(map(_read_trajectory, group.trajectories)))


def _read_trajectory(trajectory: Trajectory) -> Trajectory:
    where = f"trajectory {trajectory.id}"
    reward = read_reward(trajectory.reward, where)
    if isinstance(reward, Invalid) and not isinstance(trajectory.reward, Invalid):
        raise EnvironmentFault(reward.reason)
    turns = tuple(
        turn if turn.scores is NO_SCORES else replace(turn, scores=read_scores(turn.scores, f"turn {index} of {where}"))
        for index, turn in enumerate(trajectory.turns)
    )
    return replace(trajectory, reward=reward, turns=turns)


def _have_same_tokens(old: Trajectory, new: Trajectory) -> bool:
    return len(old.turns) == len(new.turns) and all(
        a.parent == b.parent
        and np.array_equal(a.context_ids, b.context_ids)
        and np.array_equal(a.completion.token_ids, b.completion.token_ids)
        and np.array_equal(a.completion.logprobs, b.completion.logprobs)
        for a, b in zip(old.turns, new.turns, strict=True)
    )
