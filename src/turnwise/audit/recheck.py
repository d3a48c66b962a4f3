"""Check a stored trajectory against its environment: render the prompts, run the tools, recompute the reward."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from turnwise.core.checked import to_single
from turnwise.core.closing import close_environment
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import EnvironmentFault, RenderError, StoreError, TurnwiseError, boundary
from turnwise.core.judging import list_stored_judges, seat_judges
from turnwise.core.keys import Span
from turnwise.core.messages import describe_part, list_images, show_digest
from turnwise.core.protocols import Environment, EnvironmentFamily, Opening, Renderer, StepResult
from turnwise.core.types import FinishReason, IntArray, Invalid, Reward, Task, ToolRecord, Trajectory, Turn, to_ids
from turnwise.rollout.conversation import Conversation

SLOW_CALL_S = 1.0
"""Seconds; a call that took longer, then or now, may have been cut off by a time limit, so that a difference proves
nothing."""
CLOSE_S = 10.0
"""Seconds an environment has to close."""
TOLERANCE = 1e-9


@runtime_checkable
class RecordScored(Protocol):
    """An environment whose `score` is a function of task, replies, stop reason and `tool_records` alone.

    It declares so by `scores_from_records = True`; its rewards can then be recomputed from the store without running a
    tool.
    """

    scores_from_records: bool
    tool_records: list[ToolRecord]


@dataclass(slots=True, kw_only=True)
class Rechecked:
    """The result of rechecking one trajectory: breaches by check, and what could not be compared with the reason."""

    breaches: list[tuple[str, str]] = field(default_factory=list)
    """`(check, text)`; check is "prompts", "rewards" or "tools"."""
    not_checked: list[tuple[str, str]] = field(default_factory=list)
    num_calls: int = 0
    """Number of tool calls that were compared."""
    reward_checked: bool = False
    slow: bool = False
    """Whether a call with a different result took long, then or now."""


def path_to(trajectory: Trajectory, index: int) -> list[int]:
    """Turn indices from its root to turn `index`."""
    path = [index]
    while (parent := trajectory.turns[path[-1]].parent) is not None:
        path.append(parent)
    return path[::-1]


def check_rendering(trajectory: Trajectory, opening: Opening, renderer: Renderer) -> list[str]:
    """Problems between stored text and stored token ids; empty when all of this holds.

    The prompt of every root is what the renderer makes of its conversation's opening, `opening` where the trajectory
    records none; the prompt of every later turn is its parent's prompt, the parent's completion and what the renderer
    makes of the observations between, or of the opening of a conversation that inherits; pictures stand at the places
    that the renderer gives them; every reply parses to the stored message. Parents must precede their turns.
    """
    problems = []
    for index, turn in enumerate(trajectory.turns):
        path = [trajectory.turns[i] for i in path_to(trajectory, index)]
        try:
            conversation = _arrive(trajectory, path, opening, renderer)
        except (RenderError, StoreError, EnvironmentFault) as cause:
            problems.append(f"the context of turn {index} cannot be rendered from the stored messages: {cause}")
            continue
        rendered = conversation.context_ids
        if (at := _first_difference(rendered, turn.context_ids)) is not None:
            source = "the opening gives" if turn.parent is None else f"the observations after turn {turn.parent} give"
            problems.append(
                f"the context of turn {index} does not extend what came before: token {at} is "
                f"{_token(turn.context_ids, at)}, {source} {_token(rendered, at)} ({len(turn.context_ids)} tokens "
                f"stored, {len(rendered)} rendered)"
            )
        problems += [f"turn {index}: {text}" for text in _compare_images(conversation.context_images, turn.images)]
        conversation.prompt_ids = to_ids(np.concatenate([_history(path[:-1]), turn.context_ids]))
        if conversation.reply(turn.completion) != turn.message:
            problems.append(f"the sampled token ids of turn {index} do not read as the stored reply")
    return problems


def _compare_images(rendered: Sequence[Span], stored: Sequence[Span]) -> Iterator[str]:
    """The first difference between the places of pictures that a renderer gives and those on record."""
    if len(rendered) != len(stored):
        yield f"{len(stored)} places of pictures are on record, the messages give {len(rendered)}"
    for expected, span in zip(rendered, stored, strict=False):
        if span != expected:
            yield f"{_describe_span(span)} is on record, the messages give {_describe_span(expected)}"
            return


def _describe_span(span: Span) -> str:
    grid = "" if span.grid is None else f", grid {'x'.join(map(str, span.grid))}"
    rows = "" if span.offset == 0 else f" from row {span.offset}"
    return f"picture {show_digest(span.digest)}{rows} at tokens {span.start} to {span.start + span.length - 1}{grid}"


def _arrive(trajectory: Trajectory, path: Sequence[Turn], opening: Opening, renderer: Renderer) -> Conversation:
    """The conversation before the last turn of a path: stored tokens, except for the last context, which is
    rendered."""
    turn = path[-1]
    several = len(trajectory.conversations) > 1
    start = trajectory.conversations[turn.conversation] if several else opening
    conversation = Conversation(renderer=renderer, tools=start.tools)
    if turn.parent is None:
        conversation.open(start.messages, start.tools)
        return conversation
    parent = path[-2]
    conversation.prompt_ids = to_ids(np.concatenate([_history(path[:-2]), parent.context_ids]))
    conversation.append(parent.completion, parent.message)
    conversation.go_on(parent.observations if turn.conversation == parent.conversation else start.messages)
    return conversation


def _history(path: Sequence[Turn]) -> IntArray:
    """All tokens of some turns, concatenated."""
    arrays = [array for turn in path for array in (turn.context_ids, turn.completion.token_ids)]
    return to_ids(np.concatenate([to_ids([]), *arrays]))


async def recheck_trajectory(
    trajectory: Trajectory,
    task: Task,
    *,
    family: EnvironmentFamily,
    renderer: Renderer,
    seed: int,
    run_tools: bool,
    timeout_s: float,
) -> Rechecked:
    """Reopen the environment, compare the prompts, and score the stored records or the replayed episode.

    `seed` is the environment's. With `run_tools` every reply is stepped and its observations are compared; after a
    difference the replies are played a second time. An exception from the environment is a reason for not checking,
    never an error of the audit.
    """
    outcome = Rechecked()
    linear = all(turn.parent == (index - 1 if index else None) for index, turn in enumerate(trajectory.turns))
    differences: dict[int, str] = {}
    try:
        async with asyncio.timeout(timeout_s), _open(family, task, seed, trajectory) as (environment, opening):
            outcome.breaches += [("prompts", text) for text in check_rendering(trajectory, opening, renderer)]
            if isinstance(trajectory.reward, Invalid):
                outcome.not_checked.append(("rewards", "rewards that are Invalid"))
            elif not linear:
                outcome.not_checked.append(("rewards", "trajectories of several paths or conversations"))
            elif not run_tools:
                await _score_from_records(trajectory, environment, outcome)
            else:
                differences = await _play(trajectory, environment, outcome)
        if differences:
            async with asyncio.timeout(timeout_s), _open(family, task, seed, trajectory) as (environment, _):
                await _play_again(trajectory, environment, differences, outcome)
    except (TurnwiseError, TimeoutError) as cause:
        reason = f"environments that failed when opened again ({type(cause).__name__}: {str(cause) or 'timed out'})"
        outcome.not_checked += [("prompts", reason), ("rewards", reason)]
    return outcome


@asynccontextmanager
async def _open(
    family: EnvironmentFamily, task: Task, seed: int, trajectory: Trajectory
) -> AsyncIterator[tuple[Environment, Opening]]:
    """A fresh environment after its reset; its judges repeat what they said about the trajectory. It is always closed,
    within `CLOSE_S`."""
    environment = to_single(family.build_environment(task))
    seat_judges(environment, list_stored_judges(trajectory.judgements))
    try:
        with boundary(EnvironmentFault, f"reset for task {task.id}"):
            opening = await environment.reset(task, seed)
        yield environment, opening
    finally:
        await close_or_fail(environment, task)


async def close_or_fail(environment: Environment | AskingEnvironment, task: Task) -> None:
    """Close within `CLOSE_S`. Raises EnvironmentFault when that fails."""
    if problem := await close_environment(environment, CLOSE_S):
        raise EnvironmentFault(f"task {task.id}: {problem}")


async def _score_from_records(trajectory: Trajectory, environment: Environment, outcome: Rechecked) -> None:
    if not (isinstance(environment, RecordScored) and environment.scores_from_records):
        outcome.not_checked.append(("rewards", f"rewards of {type(environment).__name__}, which need --replay-tools"))
        return
    environment.tool_records.extend(record for turn in trajectory.turns for record in turn.tool_records)
    with boundary(EnvironmentFault, f"score of task {trajectory.task_id}"):
        reward = await environment.score([turn.message for turn in trajectory.turns], trajectory.stop)
    outcome.reward_checked = True
    outcome.breaches += [("rewards", text) for text in compare_rewards(trajectory.reward, reward)]


async def _play(trajectory: Trajectory, environment: Environment, outcome: Rechecked) -> dict[int, str]:
    """Step every reply the environment saw, then score.

    Returns the differences by turn, and the reward only if there are none.
    """
    differences: dict[int, str] = {}
    for index, turn in enumerate(trajectory.turns):
        if turn.completion.finish_reason is FinishReason.LENGTH:
            break
        with boundary(EnvironmentFault, f"step of task {trajectory.task_id}"):
            result = await environment.step(turn.message)
        outcome.num_calls += len(turn.tool_records)
        if problem := next(_step_problems(turn, result), None):
            differences[index] = problem
            outcome.slow = any(record.seconds > SLOW_CALL_S for record in (*turn.tool_records, *result.tool_records))
            return differences
    with boundary(EnvironmentFault, f"score of task {trajectory.task_id}"):
        reward = await environment.score([turn.message for turn in trajectory.turns], trajectory.stop)
    outcome.reward_checked = True
    outcome.breaches += [("rewards", text) for text in compare_rewards(trajectory.reward, reward)]
    return differences


async def _play_again(
    trajectory: Trajectory, environment: Environment, differences: dict[int, str], outcome: Rechecked
) -> None:
    """Play the replies a second time: the same difference is a breach, another one shows a tool that is not repeatable.

    Slow calls are exempt only here, because the first call of an audit may have waited for its sandbox to start.
    """
    second = Rechecked()
    repeated = await _play(trajectory, environment, second)
    if second.slow:
        outcome.not_checked.append(("tools", f"calls that took longer than {SLOW_CALL_S:g} s and came out differently"))
    elif repeated == differences:
        outcome.breaches += [("tools", f"turn {index}: {text}") for index, text in differences.items()]
    else:
        outcome.not_checked.append(("tools", "tools that answer differently each time"))
    outcome.not_checked.append(("rewards", "rewards after a tool call that came out differently"))


def _step_problems(turn: Turn, result: StepResult) -> Iterator[str]:
    before, after = turn.tool_records, result.tool_records
    if len(before) != len(after):
        yield f"{len(before)} tool calls are on record, {len(after)} ran"
    for old, new in zip(before, after, strict=False):
        if _read_outcome(old) != _read_outcome(new):
            call = f"{old.call.name}({_short(old.call.arguments)})"
            yield f"{call} gives {_short(new.shown)!r}, on record is {_short(old.shown)!r}"
    shown, stored = list_images(result.observations), list_images(turn.observations)
    if shown != stored:
        names = [" ".join(map(describe_part, parts)) or "no picture" for parts in (shown, stored)]
        yield f"the environment shows {_short(names[0])}, on record is {_short(names[1])}"
    if turn.observations != result.observations:
        yield "what the environment observes is not what is on record"
    reward = result.scores.reward
    if reward is not None and not math.isclose(reward, turn.scores.reward or 0.0, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        yield f"the turn gets the reward {reward:g}, on record is {turn.scores.reward}"


def _read_outcome(record: ToolRecord) -> tuple[object, ...]:
    return record.observation, record.content, record.error, record.clipped_chars


def compare_rewards(stored: Reward, recomputed: Reward) -> list[str]:
    """The differences between a stored reward and a recomputed one; empty if there are none."""
    if isinstance(stored, Invalid) or isinstance(recomputed, Invalid):
        return (
            [f"scoring again gives {recomputed}, on record is {stored}"]
            if isinstance(stored, Invalid) != isinstance(recomputed, Invalid)
            else []
        )
    names = {part.name for part in (*stored.parts, *recomputed.parts)}
    problems = []
    if not math.isclose(stored.total, recomputed.total, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        problems.append(f"the stored reward is {stored.total:g}, scoring again gives {recomputed.total:g}")
    for name in sorted(names):
        values = stored.part(name), recomputed.part(name)
        if (
            values[0] is None
            or values[1] is None
            or not math.isclose(values[0], values[1], rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        ):
            problems.append(f"the stored part {name!r} of the reward is {values[0]}, scoring again gives {values[1]}")
    return problems


def _first_difference(expected: IntArray, stored: IntArray) -> int | None:
    common = min(len(expected), len(stored))
    different = np.flatnonzero(expected[:common] != stored[:common])
    if len(different):
        return int(different[0])
    return None if len(expected) == len(stored) else common


def _token(ids: IntArray, at: int) -> str:
    return str(ids[at]) if at < len(ids) else "missing"


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
