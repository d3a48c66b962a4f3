"""Where an attempt first leaves what would have succeeded, by the policy's own continuations from each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from turnwise.badcases.divergence import Divergence, Unknown, find_largest_fall
from turnwise.core.checked import to_single
from turnwise.core.paths import split_paths
from turnwise.core.protocols import Engine, EnvironmentFamily, ForkableEnvironment, Renderer
from turnwise.core.types import (
    Completion,
    Draw,
    IntArray,
    Invalid,
    SamplingParams,
    Scored,
    Session,
    Trajectory,
)
from turnwise.evaluation.summary import is_right
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.branching import ValueEstimates, run_branched_trajectory
from turnwise.rollout.limits import Limits


class RecallingEngine:
    """Implements `Engine`: repeats the stored replies in the sessions that have some, and samples in all others."""

    def __init__(self, engine: Engine, stored: Mapping[Session, Sequence[Completion]]) -> None:
        self._engine = engine
        self._stored = {session: list(replies) for session, replies in stored.items()}

    @property
    def version(self) -> int:
        """See `Engine.version`."""
        return self._engine.version

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """Return the next stored reply of the session, or sample one."""
        if self._stored.get(session):
            return self._stored[session].pop(0)
        return await self._engine.generate(prompt_ids, params, session=session)

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        await self._engine.release(session)

    async def close(self) -> None:
        """Do nothing: who made the engine closes it."""


async def find_by_continuations(
    family: EnvironmentFamily,
    engine: Engine,
    renderer: Renderer,
    limits: Limits,
    sampling: Sampling,
    draw: Draw,
    trajectory: Trajectory,
    *,
    num_continuations: int,
    gate: asyncio.Semaphore,
) -> Divergence | Unknown:
    """Play the stored attempt again, sample `num_continuations` from the state before each of its turns in an
    environment that is forked there, and return the turn with the largest fall of their success.

    `sampling` has a temperature above 0, and the seed with which the environment was opened.
    """
    environment = to_single(family.build_environment(draw.task))
    if len(trajectory.conversations) > 1 or not isinstance(environment, ForkableEnvironment):
        return Unknown(reason=f"{type(environment).__name__} cannot be forked; use --by oracle")
    number = trajectory.id.attempt
    attempt = Attempt(draw=draw, member=trajectory.id.member, number=number, scope="badcases")
    stored = {attempt.session(): [turn.completion for turn in trajectory.turns]}
    whole = await run_branched_trajectory(
        attempt,
        environment,
        RecallingEngine(engine, stored),
        renderer,
        limits,
        sampling,
        branching=ValueEstimates(num_continuations=num_continuations),
        gate=gate,
    )
    if isinstance(whole.reward, Invalid):
        return Unknown(reason=f"the attempt could not be continued ({whole.reward.reason})")
    paths = split_paths(whole)
    if _list_contexts(paths[0].trajectory) != _list_contexts(trajectory):
        return Unknown(reason="the environment answers otherwise than stored")
    success: list[list[float]] = [[] for _ in trajectory.turns]
    for path in paths[1:]:
        if isinstance(path.trajectory.reward, Scored):
            success[path.num_shared].append(float(is_right(path.trajectory.reward)))
    if not all(success):
        return Unknown(reason="every continuation from one state failed")
    return find_largest_fall("continuations", [sum(values) / len(values) for values in success])


def _list_contexts(trajectory: Trajectory) -> list[list[int]]:
    """Return the tokens that stand before each reply: the prompt, then what the environment answered."""
    return [turn.context_ids.tolist() for turn in trajectory.turns]
