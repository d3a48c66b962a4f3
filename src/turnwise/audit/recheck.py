"""A stored trajectory against the things it was made with: its text against the renderer, its rewards and tools against
the environment.

Compares and reports; what is stored stays as it is. A difference counts only where the second time can be trusted: a
tool that answers two replays differently is not repeatable, and neither is a call slow enough that a deadline may have
decided it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from turnwise.core.errors import EnvironmentFault, RenderError, TurnwiseError, boundary
from turnwise.core.protocols import Environment, EnvironmentFamily, Opening, Renderer, StepResult
from turnwise.core.types import FinishReason, IntArray, Invalid, Reward, Task, ToolRecord, Trajectory, Turn, to_ids

SLOW_CALL_S = 1.0
"""A call that took longer, then or now, may have been cut off by a time limit: a difference proves nothing."""
TOLERANCE = 1e-9


@runtime_checkable
class RecordScored(Protocol):
    """An environment whose `score` is a function of task, replies, stop reason and `tool_records` alone.

    It says so by `scores_from_records = True`; its rewards can then be recomputed from the store without running a
    tool."""

    scores_from_records: bool
    tool_records: list[ToolRecord]


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What one trajectory's replay says: breaches by check, and what could not be compared and why."""

    breaches: list[tuple[str, str]] = field(default_factory=list)
    """`(check, text)`; check is "prompts", "rewards" or "tools"."""
    not_checked: list[tuple[str, str]] = field(default_factory=list)
    num_calls: int = 0
    """Tool calls that were compared."""
    reward_checked: bool = False
    slow: bool = False
    """Whether a call that came out differently took long, then or now."""


def path_to(trajectory: Trajectory, index: int) -> list[int]:
    """Turn indices from the root to turn `index`."""
    path = [index]
    while (parent := trajectory.turns[path[-1]].parent) is not None:
        path.append(parent)
    return path[::-1]


def check_rendering(trajectory: Trajectory, opening: Opening, renderer: Renderer) -> list[str]:
    """Problems between stored text and stored token ids; empty when all of this holds.

    The prompt is what the renderer makes of the opening; the prompt of every later turn is its parent's prompt, the
    parent's completion and what the renderer makes of the observations between; every reply parses to the stored
    message. Parents must precede their turns."""
    problems = []
    for index, turn in enumerate(trajectory.turns):
        before = path_to(trajectory, index)[:-1]
        history = [
            array
            for i in before
            for array in (trajectory.turns[i].context_ids, trajectory.turns[i].completion.token_ids)
        ]
        try:
            if turn.parent is None:
                expected = renderer.open(opening.messages, opening.tools)
            else:
                parent = trajectory.turns[turn.parent]
                prompt = to_ids(np.concatenate(history[:-1]))
                expected = renderer.extend(prompt, parent.completion.token_ids, parent.observations, opening.tools)
        except RenderError as cause:
            problems.append(f"the context of turn {index} cannot be rendered from the stored messages: {cause}")
            continue
        if (at := _first_difference(expected, turn.context_ids)) is not None:
            source = "the task's prompt" if turn.parent is None else f"the observations after turn {turn.parent}"
            problems.append(
                f"the context of turn {index} does not extend what came before: token {at} is "
                f"{_token(turn.context_ids, at)}, "
                f"{source} give {_token(expected, at)} ({len(turn.context_ids)} tokens stored, {len(expected)} "
                "rendered)"
            )
        full_prompt = to_ids(np.concatenate([*history, turn.context_ids]))
        if renderer.parse(full_prompt, turn.completion.token_ids) != turn.message:
            problems.append(f"the sampled token ids of turn {index} do not read as the stored reply")
    return problems


async def replay_trajectory(
    trajectory: Trajectory,
    task: Task,
    *,
    family: EnvironmentFamily,
    renderer: Renderer,
    seed: int,
    run_tools: bool,
    timeout_s: float,
) -> Replayed:
    """Open the environment again, compare prompts, and score: from the stored records, or after playing the stored
    replies again.

    `seed` is the environment's. With `run_tools` every reply is stepped and its observations are compared; a difference
    is looked at twice. Whatever the environment raises is a reason for not checking, never an error of the audit."""
    found = Replayed()
    linear = all(turn.parent == (index - 1 if index else None) for index, turn in enumerate(trajectory.turns))
    try:
        async with asyncio.timeout(timeout_s):
            environment = family.build_environment()
            opening = await _open(environment, task, seed)
            try:
                found.breaches += [("prompts", text) for text in check_rendering(trajectory, opening, renderer)]
                if isinstance(trajectory.reward, Invalid):
                    found.not_checked.append(("rewards", "rewards that are Invalid"))
                elif not linear:
                    found.not_checked.append(("rewards", "branched trajectories"))
                elif not run_tools:
                    await _score_from_records(trajectory, environment, found)
                else:
                    differences = await _play(trajectory, environment, found)
            finally:
                await environment.close()
            if run_tools and linear and not isinstance(trajectory.reward, Invalid) and differences:
                await _look_again(trajectory, task, family, seed, differences, found)
    except (TurnwiseError, TimeoutError) as cause:
        reason = f"environments that failed when opened again ({type(cause).__name__}: {str(cause) or 'timed out'})"
        found.not_checked += [("prompts", reason), ("rewards", reason)]
    return found


async def _open(environment: Environment, task: Task, seed: int) -> Opening:
    with boundary(EnvironmentFault, f"reset for task {task.id}"):
        return await environment.reset(task, seed)


async def _score_from_records(trajectory: Trajectory, environment: Environment, found: Replayed) -> None:
    if not (isinstance(environment, RecordScored) and environment.scores_from_records):
        found.not_checked.append(("rewards", f"rewards of {type(environment).__name__}, which need --replay-tools"))
        return
    environment.tool_records.extend(record for turn in trajectory.turns for record in turn.tool_records)
    with boundary(EnvironmentFault, f"score of task {trajectory.task_id}"):
        reward = await environment.score([turn.message for turn in trajectory.turns], trajectory.stop)
    found.reward_checked = True
    found.breaches += [("rewards", text) for text in _reward_problems(trajectory.reward, reward)]


async def _play(trajectory: Trajectory, environment: Environment, found: Replayed) -> dict[int, str]:
    """Step every reply the environment saw, then score. Returns what was different, by turn; the reward only where
    nothing was."""
    differences: dict[int, str] = {}
    for index, turn in enumerate(trajectory.turns):
        if turn.completion.finish_reason is FinishReason.LENGTH:
            break
        with boundary(EnvironmentFault, f"step of task {trajectory.task_id}"):
            result = await environment.step(turn.message)
        found.num_calls += len(turn.tool_records)
        if problem := next(_step_problems(turn, result), None):
            differences[index] = problem
            found.slow = any(record.seconds > SLOW_CALL_S for record in (*turn.tool_records, *result.tool_records))
            return differences
    with boundary(EnvironmentFault, f"score of task {trajectory.task_id}"):
        reward = await environment.score([turn.message for turn in trajectory.turns], trajectory.stop)
    found.reward_checked = True
    found.breaches += [("rewards", text) for text in _reward_problems(trajectory.reward, reward)]
    return differences


async def _look_again(
    trajectory: Trajectory,
    task: Task,
    family: EnvironmentFamily,
    seed: int,
    differences: dict[int, str],
    found: Replayed,
) -> None:
    """A second replay: the same difference again is a breach, another one is a tool that cannot be repeated.

    Only now are slow calls left alone: the first one of an audit may have waited for what runs it to start.
    """
    environment = family.build_environment()
    await _open(environment, task, seed)
    again = Replayed()
    try:
        repeated = await _play(trajectory, environment, again)
    finally:
        await environment.close()
    if again.slow:
        found.not_checked.append(("tools", f"calls that took longer than {SLOW_CALL_S:g} s and came out differently"))
    elif repeated == differences:
        found.breaches += [("tools", f"turn {index}: {text}") for index, text in differences.items()]
    else:
        found.not_checked.append(("tools", "tools that answer two replays differently"))
    found.not_checked.append(("rewards", "rewards after a tool call that came out differently"))


def _step_problems(turn: Turn, result: StepResult) -> Iterator[str]:
    before, after = turn.tool_records, result.tool_records
    if len(before) != len(after):
        yield f"{len(before)} tool calls are on record, {len(after)} ran"
    for old, new in zip(before, after, strict=False):
        if (old.observation, old.error, old.clipped_chars) != (new.observation, new.error, new.clipped_chars):
            call = f"{old.call.name}({_short(old.call.arguments)})"
            yield f"{call} gives {_short(new.observation)!r}, on record is {_short(old.observation)!r}"
    if turn.observations != result.observations:
        yield "what the environment observes is not what is on record"


def _reward_problems(stored: Reward, again: Reward) -> list[str]:
    if isinstance(stored, Invalid) or isinstance(again, Invalid):
        return (
            [f"scoring again gives {again}, on record is {stored}"]
            if isinstance(stored, Invalid) != isinstance(again, Invalid)
            else []
        )
    names = {part.name for part in (*stored.parts, *again.parts)}
    problems = []
    if not math.isclose(stored.total, again.total, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        problems.append(f"the stored reward is {stored.total:g}, scoring again gives {again.total:g}")
    for name in sorted(names):
        values = stored.part(name), again.part(name)
        if (
            values[0] is None
            or values[1] is None
            or not math.isclose(values[0], values[1], rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        ):
            problems.append(f"the stored part {name!r} of the reward is {values[0]}, scoring again gives {values[1]}")
    return problems


def _first_difference(expected: IntArray, found: IntArray) -> int | None:
    common = min(len(expected), len(found))
    different = np.flatnonzero(expected[:common] != found[:common])
    if len(different):
        return int(different[0])
    return None if len(expected) == len(found) else common


def _token(ids: IntArray, at: int) -> str:
    return str(ids[at]) if at < len(ids) else "missing"


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
