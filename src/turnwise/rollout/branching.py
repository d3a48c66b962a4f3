"""Branched rollouts: one attempt, then further continuations from states that it passed through, in environments forked
there.

Three plans. Value estimates (VinePPO, arXiv 2410.01679): fresh continuations from the state before every reply of the
attempt; they never train. Trees (Tree-GRPO, arXiv 2509.21240): states drawn at random get further leaves, in rounds.
Entropy-guided (ARPO, arXiv 2507.19849): states after which the policy's first tokens were less certain than at the
start. Credit decides what the leaves are worth.

Prefixes are recorded once (`core.paths`): a branch's turns hang below the turn it forked from.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from turnwise.algorithms.turns.branching import compute_sampled_entropy, should_branch
from turnwise.core.closing import close_environment
from turnwise.core.errors import EnvironmentFault, ToolFailure, TurnwiseError, boundary
from turnwise.core.protocols import Engine, Environment, ForkableEnvironment, Renderer
from turnwise.core.seeds import rng
from turnwise.core.types import Ending, Invalid, StopReason, Trajectory, Turn
from turnwise.rollout.attempt import Attempt, Sampling
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import Cut, absorb_cut, cut_reward, finish, run_trajectory
from turnwise.rollout.play import Fork, Visit


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEstimates:
    """`num_continuations` fresh rollouts from the state before every reply of the attempt."""

    num_continuations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomTree:
    """`num_branches` more leaves per round, from states drawn uniformly among those after a reply (the start if there
    are none)."""

    num_branches: int
    num_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyTree:
    """Up to `num_branches` more leaves, where the policy became uncertain (`should_branch`); the remaining ones start
    from the beginning.

    Deviation from ARPO: the entropy of a position is estimated by -log p of the token that was sampled there (its
    expectation is the entropy), because an engine reports no other probabilities; and it is measured after the reply,
    at no extra cost."""

    num_branches: int
    vocab_size: int
    weight: float = 0.2
    threshold: float = 0.5
    num_tokens: int = 20
    """Number of first tokens of a reply that count."""


Branching = ValueEstimates | RandomTree | EntropyTree

State = int | None
"""Index of the turn after which the state occurs; None is the start."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Snapshot:
    """A state from which to branch."""

    conversation: Conversation
    environment: ForkableEnvironment
    """The environment in that state; it is only forked, never stepped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Idle:
    """A branch that never trains."""

    state: State
    """The state from which it branched."""
    branch: Trajectory
    """The branch; its turns' parents count from its own first turn."""
    kind: Literal["leaf", "estimate"]


async def run_branched_trajectory(
    attempt: Attempt,
    environment: Environment,
    engine: Engine,
    renderer: Renderer,
    limits: Limits,
    sampling: Sampling,
    *,
    branching: Branching,
    gate: asyncio.Semaphore,
    cut: Cut | None = None,
) -> Trajectory:
    """Run one attempt, then its branches, as one branched trajectory. It fails and is cut like `run_trajectory`.

    A branch that fails is kept as turns that never train. The whole is Invalid if the attempt itself is, if the
    environment cannot be forked, if every continuation from one state failed (its value is then unknown), or if it was
    cut before all its branches had ended.

    Args:
        gate: limits how many branches of all trajectories may be open at once.
    """
    tree = _Tree(
        attempt=attempt, engine=engine, renderer=renderer, limits=limits, sampling=sampling, gate=gate, cut=cut
    )
    snapshots: list[_Snapshot] = []
    try:
        first = await run_trajectory(
            attempt, environment, engine, renderer, limits, sampling, visit=tree.visitor(snapshots), cut=cut
        )
        if isinstance(first.reward, Invalid):
            return first
        tree.plant(first.turns, snapshots)
        if isinstance(branching, ValueEstimates):
            states = [state for state in tree.snapshots for _ in range(branching.num_continuations)]
            await tree.grow(states, estimate=True)
        elif isinstance(branching, RandomTree):
            await _grow_at_random(tree, branching)
        else:
            await _grow_by_entropy(tree, branching)
    finally:
        await finish(tree.close(), cut)
    turns, endings = tree.to_turns()
    whole = replace(first, turns=turns, endings=endings)
    if tree.interrupted:
        reward = cut_reward()
        return replace(whole, stop=StopReason.CUT, reward=reward, error=reward.reason)
    if isinstance(branching, ValueEstimates) and branching.num_continuations in tree.num_failed.values():
        reason = f"every continuation from one state failed, so it has no value; the last failure: {tree.failure}"
        return replace(whole, reward=Invalid(reason=reason, retryable=True), error=reason)
    return whole


async def _grow_at_random(tree: _Tree, branching: RandomTree) -> None:
    for number in range(branching.num_rounds):
        states: list[State] = [state for state in tree.snapshots if state is not None] or [None]
        random = rng(tree.attempt.seed(tree.sampling.seed, "grow", number))
        whole, remainder = divmod(branching.num_branches, len(states))
        await tree.grow(
            sorted(
                [*states * whole, *random.sample(states, remainder)], key=lambda state: -1 if state is None else state
            )
        )


async def _grow_by_entropy(tree: _Tree, branching: EntropyTree) -> None:
    """Visit paths in the order in which they were sampled, not at each path's first turn: an earlier path has its
    state."""
    paths = [list(range(len(tree.turns)))]
    while paths and tree.num_branches < branching.num_branches:
        uncertain = [state for path in paths for state in _find_uncertain(tree, path[1:], branching)]
        paths = await tree.grow(uncertain[: branching.num_branches - tree.num_branches])
    await tree.grow([None] * (branching.num_branches - tree.num_branches))


def _find_uncertain(tree: _Tree, turns: Sequence[int], branching: EntropyTree) -> list[State]:
    """Return the states before these turns from which to branch."""
    uncertain: list[State] = []
    for index in turns:
        root = index
        while (parent := tree.turns[root].parent) is not None:
            root = parent
        entropy, initial = (
            compute_sampled_entropy(
                tree.turns[i].completion.logprobs, vocab_size=branching.vocab_size, max_tokens=branching.num_tokens
            )
            for i in (index, root)
        )
        uniform = rng(tree.attempt.seed(tree.sampling.seed, "branch at", index)).random()
        if should_branch(entropy, initial, uniform, weight=branching.weight, threshold=branching.threshold):
            uncertain.append(tree.turns[index].parent)
    return uncertain


@dataclass(slots=True, kw_only=True, eq=False)
class _Tree:
    """One attempt and its branches while they grow."""

    attempt: Attempt
    engine: Engine
    renderer: Renderer
    limits: Limits
    sampling: Sampling
    gate: asyncio.Semaphore
    cut: Cut | None
    turns: list[Turn] = field(default_factory=list)
    """Turns that train."""
    endings: list[Ending] = field(default_factory=list)
    """Endings of the leaves that train."""
    idle: list[_Idle] = field(default_factory=list)
    snapshots: dict[State, _Snapshot] = field(default_factory=dict)
    opened: list[_Snapshot] = field(default_factory=list)
    """Every snapshot that was taken, on any path."""
    num_branches: int = 0
    num_failed: Counter[State] = field(default_factory=Counter)
    failure: str = ""
    """Why the last failed branch failed."""
    interrupted: bool = False
    """Whether a cut kept branches from being sampled to their end."""

    def visitor(self, snapshots: list[_Snapshot], *, skip_first: bool = False) -> Visit:
        """Return a visitor that appends a snapshot of every position of one path to `snapshots`, except the first one
        if `skip_first`."""
        skipped = not skip_first

        async def visit(conversation: Conversation, environment: Environment) -> None:
            nonlocal skipped
            if not skipped:
                skipped = True
                return
            if not isinstance(environment, ForkableEnvironment):
                raise EnvironmentFault(
                    f"{type(environment).__name__} has no fork(); choose a credit method that does not need it"
                )
            twin = await self._fork(environment)
            if not isinstance(twin, ForkableEnvironment):
                await close_environment(twin)
                raise EnvironmentFault(
                    f"fork() of {type(environment).__name__} returned a {type(twin).__name__}, which has no fork()"
                )
            snapshot = _Snapshot(conversation=conversation.fork(), environment=twin)
            self.opened.append(snapshot)
            snapshots.append(snapshot)

        return visit

    def plant(self, turns: Sequence[Turn], snapshots: Sequence[_Snapshot]) -> None:
        """Add the attempt itself, the first path."""
        self.turns = list(turns)
        self.snapshots = {index - 1 if index else None: snapshot for index, snapshot in enumerate(snapshots)}

    async def grow(self, states: Sequence[State], *, estimate: bool = False) -> list[list[int]]:
        """Sample one branch from each state, all at once. Returns the turns of each branch that trains; failed branches
        and estimates do not train. Samples nothing after a cut."""
        if not states:
            return []
        if self.cut is not None and self.cut.reason is not None:
            self.interrupted = True
            return []
        numbers = range(self.num_branches + 1, self.num_branches + 1 + len(states))
        self.num_branches += len(states)
        visited: list[list[_Snapshot]] = [[] for _ in states]
        tasks = [
            asyncio.ensure_future(self._sample(state, number, None if estimate else snapshots))
            for state, number, snapshots in zip(states, numbers, visited, strict=True)
        ]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            is_cut = absorb_cut(self.cut)
            for task in tasks:
                task.cancel()
            await finish(asyncio.wait(tasks), self.cut)
            if not is_cut:
                raise
        branches = [None if task.cancelled() else task.result() for task in tasks]
        self.interrupted = any(branch is None or branch.stop is StopReason.CUT for branch in branches)
        grown = []
        for state, snapshots, branch in zip(states, visited, branches, strict=True):
            if branch is None:
                continue
            if isinstance(branch.reward, Invalid):
                self.num_failed[state] += 1
                self.failure = branch.reward.reason
            if not branch.turns:
                continue
            if estimate or isinstance(branch.reward, Invalid):
                self.idle.append(_Idle(state=state, branch=branch, kind="estimate" if estimate else "leaf"))
                continue
            indices = list(range(len(self.turns), len(self.turns) + len(branch.turns)))
            self.turns += _hang(branch.turns, state, indices[0])
            self.endings.append(_end(branch, indices[-1], "leaf"))
            self.snapshots |= dict(zip(indices, snapshots, strict=False))
            grown.append(indices)
        return grown

    async def _sample(self, state: State, number: int, snapshots: list[_Snapshot] | None) -> Trajectory:
        snapshot, attempt = self.snapshots[state], self.attempt
        async with self.gate:
            try:
                async with asyncio.timeout(self.limits.timeout_s):
                    environment = await self._fork(snapshot.environment)
            except (TurnwiseError, ToolFailure, TimeoutError) as cause:
                late = not isinstance(cause, TurnwiseError | ToolFailure)
                detail = f"ran past rollout.trajectory_timeout_s={self.limits.timeout_s}" if late else str(cause)
                reward = Invalid(reason=detail, retryable=True)
                return Trajectory(
                    id=attempt.id, task_id=attempt.task.id, turns=(), stop=StopReason.ERROR, reward=reward
                )
            return await run_trajectory(
                attempt,
                environment,
                self.engine,
                self.renderer,
                self.limits,
                self.sampling,
                fork=Fork(number=number, conversation=snapshot.conversation),
                visit=None if snapshots is None else self.visitor(snapshots, skip_first=True),
                cut=self.cut,
            )

    async def _fork(self, environment: ForkableEnvironment) -> Environment:
        with boundary(
            EnvironmentFault, f"fork of environment {self.attempt.task.environment!r} for task {self.attempt.task.id}"
        ):
            return await environment.fork()

    def to_turns(self) -> tuple[tuple[Turn, ...], tuple[Ending, ...]]:
        """Return all turns and endings, those that never train last."""
        turns, endings = list(self.turns), list(self.endings)
        for idle in self.idle:
            turns += _hang(idle.branch.turns, idle.state, len(turns))
            endings.append(_end(idle.branch, len(turns) - 1, idle.kind))
        return tuple(turns), tuple(endings)

    async def close(self) -> None:
        """Close every snapshot, including those of a cancelled path; errors here concern no trajectory."""
        environments = [snapshot.environment for snapshot in self.opened]
        await asyncio.gather(*map(close_environment, environments))  # type: ignore[arg-type]


def _end(branch: Trajectory, turn: int, kind: Literal["leaf", "estimate"]) -> Ending:
    return Ending(turn=turn, stop=branch.stop, reward=branch.reward, kind=kind)


def _hang(turns: Sequence[Turn], state: State, first: int) -> list[Turn]:
    """Return a branch's turns with their parents in the tree, where the branch's first turn has index `first`."""
    return [replace(turn, parent=state if turn.parent is None else first + turn.parent) for turn in turns]
