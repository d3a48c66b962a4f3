"""Monte-Carlo tree search over environments that fork: a policy proposes replies, a value function judges where they
lead (ReST-MCTS*, arXiv 2406.03816, with AlphaZero's selection).

Searches of several tasks advance in step: each chooses one state, all replies are sampled together, all new states are
judged together. A tree depends only on its own task, never on the others or on timing.

Deviations from ReST-MCTS*: one reply per simulation instead of three and a greedy rollout, so that a budget of calls is
kept exactly; no self-critic; no early stop at a value of 0.9, so that every arm of a comparison spends its budget.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnwise.core.checked import judge, to_single
from turnwise.core.closing import close_environment
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import EnvironmentFault, TurnwiseError, boundary
from turnwise.core.protocols import (
    Engine,
    Environment,
    ForkableEnvironment,
    Opening,
    Renderer,
    StatefulEnvironment,
    StepResult,
)
from turnwise.core.types import Draw, Invalid, Message, Reward, Scored, StopReason, Task, Turn, to_ids
from turnwise.rollout.attempt import Attempt, Sampling, environment_seed
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.limits import Limits
from turnwise.rollout.loop import run_trajectory
from turnwise.rollout.play import Fork
from turnwise_worlds.planning.tree import Node, back_up, descend, select
from turnwise_worlds.planning.values import Judged, ValueFunction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """The content of a state of the search."""

    environment: Environment
    """The environment in this state; only forked, never stepped itself."""
    conversation: Conversation
    """The context of the next reply."""
    judged: Judged
    turn: Turn | None
    """The reply that led here; None at the start."""
    stop: StopReason | None
    """Why the episode ended here; None if it continues."""
    key: str
    """Key that is equal for replies leading to the same state."""


SearchNode = Node[Place]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """One reply that a search sampled, for the search's record, in the order of sampling."""

    turn: Turn
    parent: SearchNode
    stop: StopReason | None
    reward: Reward | None
    """Reward of the episode that ended here; None if it continues."""
    node: SearchNode | None
    """The state that the reply led to, if it was new."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposer:
    """Samples a search's replies. `sampling` draws from the whole distribution: priors are its probabilities."""

    build_environment: Callable[[Task], Environment | AskingEnvironment]
    engine: Engine
    renderer: Renderer
    limits: Limits
    sampling: Sampling


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Search:
    """The search of one task. Its `repr` shows no states, whose tokens would fill pages."""

    attempt: Attempt
    proposer: Proposer
    max_calls: int
    exploration: float
    root: SearchNode | None = None
    sampled: list[Sampled] = field(default_factory=list)
    calls: int = 0
    """Number of requests to the engine."""
    failure: str | None = None
    """Why the search was aborted; None if it was not."""

    @property
    def answer(self) -> SearchNode | None:
        """The end with the greatest value; None if none was reached."""
        return self.answer_after(self.calls)

    def answer_after(self, calls: int) -> SearchNode | None:
        """The answer after a number of calls: a search with a smaller budget is the beginning of this one."""
        ends = [each.node for each in self.sampled[:calls] if each.node is not None and each.node.has_ended]
        return max(ends, key=lambda node: node.value, default=None)

    @property
    def wants_reply(self) -> bool:
        """Whether there is budget left and something to find. A search always continues until its first end."""
        if self.root is None or self.failure is not None or self.root.is_exhausted:
            return False
        return self.calls < self.max_calls or self.answer is None

    def choose(self) -> SearchNode:
        """The state that gets the next reply. The first replies go straight to an end."""
        assert self.root is not None
        return descend(self.root) if self.answer is None else select(self.root, self.exploration)

    async def open(self) -> None:
        """Reset the environment and render the start; an error becomes `failure`."""
        task, proposer = self.attempt.task, self.proposer
        try:
            async with asyncio.timeout(proposer.limits.timeout_s):
                with boundary(EnvironmentFault, f"reset of environment {task.environment!r} for task {task.id}"):
                    environment = to_single(proposer.build_environment(task))
                    opening = await environment.reset(task, environment_seed(proposer.sampling.seed, self.attempt.draw))
            conversation = Conversation(renderer=proposer.renderer)
            conversation.open(opening.messages, opening.tools)
        except (TurnwiseError, TimeoutError) as cause:
            self.failure = f"{type(cause).__name__}: {cause}"
            return
        judged = Judged(token_ids=conversation.prompt_ids, environment=environment, reward=None)
        self.root = Node(
            place=Place(environment=environment, conversation=conversation, judged=judged, turn=None, stop=None, key="")
        )

    async def propose(self, node: SearchNode) -> SearchNode | None:
        """Sample one reply in a state. Returns the state it leads to if that is new, not yet part of the tree."""
        self.calls += 1
        node.num_proposals += 1
        place, limits = node.place, self.proposer.limits
        is_last = node.depth + 1 >= limits.max_turns
        try:
            async with asyncio.timeout(limits.timeout_s):
                with boundary(EnvironmentFault, f"fork of the environment of task {self.attempt.task.id}"):
                    twin = await _fork(place.environment)
        except (TurnwiseError, TimeoutError) as cause:
            self.failure = f"{type(cause).__name__}: {cause}"
            return None
        held = _Held(twin, is_last=is_last)
        trajectory = await run_trajectory(
            self.attempt,
            held,
            self.proposer.engine,
            self.proposer.renderer,
            replace(limits, max_turns=node.depth + 1),
            self.proposer.sampling,
            fork=Fork(number=self.calls, conversation=place.conversation),
        )
        if not trajectory.turns:
            self.failure = trajectory.error or f"no room for a reply: {trajectory.stop.value}"
            await close_environment(twin)
            return None
        [turn] = trajectory.turns
        goes_on = trajectory.stop is StopReason.MAX_TURNS and not is_last
        child = self._build(node, turn, twin, None if goes_on else trajectory.stop, trajectory.reward)
        known = next((other for other in node.children if other.place.key == child.place.key), None)
        reward = child.place.judged.reward
        self.sampled.append(
            Sampled(
                turn=child.place.turn or turn,
                parent=node,
                stop=child.place.stop,
                reward=reward,
                node=child if known is None else None,
            )
        )
        if known is not None:
            if not any(_is_same_reply(turn, each.turn) for each in self.sampled[:-1] if each.parent is node):
                known.prior += child.prior
            back_up(known, known.value)
            await close_environment(twin)
            return None
        return child

    def _build(
        self, parent: SearchNode, turn: Turn, environment: Environment, stop: StopReason | None, reward: Reward
    ) -> SearchNode:
        before = parent.place
        turn = replace(turn, state=_read_state(before.environment))
        conversation = before.conversation.fork()
        conversation.append(turn.completion, turn.message)
        token_ids = to_ids(np.concatenate([before.conversation.prompt_ids, turn.completion.token_ids]))
        key = " ".join(map(str, turn.completion.token_ids.tolist()))
        if stop is None:
            conversation.go_on(turn.observations)
            token_ids = conversation.prompt_ids
            key = _read_state(environment) or key
        return Node(
            parent=parent,
            prior=math.exp(min(0.0, float(turn.completion.logprobs.sum()))),
            has_ended=stop is not None,
            place=Place(
                environment=environment,
                conversation=conversation,
                judged=Judged(token_ids=token_ids, environment=environment, reward=None if stop is None else reward),
                turn=turn,
                stop=stop,
                key=key,
            ),
        )

    async def close(self) -> None:
        """Close every environment."""
        if self.root is not None:
            await asyncio.gather(*(close_environment(node.place.environment) for node in self.root.walk()))


async def run_searches(
    draws: Sequence[Draw], proposer: Proposer, value: ValueFunction, *, max_calls: int, exploration: float, scope: str
) -> list[Search]:
    """Search every task within `max_calls` requests to the engine each. A failure aborts only its own search.

    Args:
        exploration: the constant of `select`.
        scope: purpose of the search; keeps engine sessions apart.
    """
    searches = [
        Search(
            attempt=Attempt(draw=draw, member=0, scope=scope),
            proposer=proposer,
            max_calls=max_calls,
            exploration=exploration,
        )
        for draw in draws
    ]
    try:
        await asyncio.gather(*(search.open() for search in searches))
        _judge([search.root for search in searches if search.root is not None], value)
        while active := [search for search in searches if search.wants_reply]:
            fresh = await asyncio.gather(*(search.propose(search.choose()) for search in active))
            _judge([node for node in fresh if node is not None], value)
    finally:
        await asyncio.gather(*(search.close() for search in searches))
    return searches


def _judge(nodes: Sequence[SearchNode], value: ValueFunction) -> None:
    """Score new states and add them to their trees."""
    scored = [node for node in nodes if not isinstance(node.place.judged.reward, Invalid)]
    values = value.score([node.place.judged for node in scored]) if scored else []
    for node, worth in zip(scored, values, strict=True):
        node.value = min(1.0, max(0.0, worth))
    for node in nodes:
        if node.parent is not None:
            node.parent.children.append(node)
        back_up(node, node.value)


def _is_same_reply(one: Turn, other: Turn) -> bool:
    return bool(np.array_equal(one.completion.token_ids, other.completion.token_ids))


def _read_state(environment: Environment) -> str | None:
    return environment.state_hash() if isinstance(environment, StatefulEnvironment) else None


async def _fork(environment: Environment) -> Environment:
    if not isinstance(environment, ForkableEnvironment):
        raise EnvironmentFault(f"{type(environment).__name__} has no fork(), which a search needs")
    return await environment.fork()


class _Held:
    """Implements `Environment`: one that is stepped once and stays open, to be forked from."""

    def __init__(self, environment: Environment, *, is_last: bool) -> None:
        """`is_last` says whether the limit of turns ends the episode after the next reply."""
        self._environment = environment
        self._is_last = is_last

    async def reset(self, task: Task, seed: int) -> Opening:
        """Raises EnvironmentFault: it is in the middle of an episode."""
        raise EnvironmentFault("a state in a search cannot be reset")

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`."""
        return await self._environment.step(message)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """See `Environment.score`; a reward of 0, which nothing reads, if the episode continues."""
        if stop is StopReason.MAX_TURNS and not self._is_last:
            return Scored(total=0.0)
        return await judge(self._environment, replies, stop)

    async def close(self) -> None:
        """Do nothing: the search closes it."""
