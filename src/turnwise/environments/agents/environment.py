"""An episode that an agent plays at an endpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnwise.core.checked import judge, to_asking, to_single
from turnwise.core.episodes import AGENT, ASIDE, Asked, Endpoint, EpisodeEnd, EpisodeSpec, RoleSpec
from turnwise.core.errors import EnvironmentFault, SandboxError, TurnwiseError, boundary
from turnwise.core.protocols import Environment
from turnwise.core.threads import run_method
from turnwise.core.types import ConversationOpening, Invalid, Message, Reward, Scored, StopReason, Task
from turnwise.environments.agents.command import run_command
from turnwise.environments.agents.sandboxed import SandboxedCommand

Agent = Callable[[Task, str, str], Any]
"""Plays a task with a client of the base URL and the key; returns its outcome. May be async."""
Score = Callable[[Task, Any], Any]
"""Returns the reward of an outcome: a number or a `Reward`. May be async."""


class AgentEnvironment:
    """Implements `LiveEnvironment`: the tasks of `base`, played by an agent."""

    def __init__(
        self,
        base: Environment,
        agent: Agent | Sequence[str] | SandboxedCommand,
        *,
        score: Score | None = None,
        on_error: str = "invalid",
        train_roots: str = "tools",
    ) -> None:
        """`agent` is a function, a command, or one that runs in the sandbox; the others as in `AgentArguments`."""
        roles = (RoleSpec(name=AGENT),) + (() if train_roots == "all" else (RoleSpec(name=ASIDE),))
        self.spec = EpisodeSpec(roles=roles)
        self.base = to_single(base)
        """The family's own environment."""
        self._agent, self._score = agent, score
        self._asking = to_asking(base)
        self._on_error, self._train_roots = on_error, train_roots
        self._played: tuple[Task, int, Endpoint, Any] | None = None

    async def begin(self, task: Task, seed: int) -> Asked:
        """See `AskingEnvironment.begin`: the family's own environment, for checks and demonstrations."""
        return await self._asking.begin(task, seed)

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """See `AskingEnvironment.tell`."""
        return await self._asking.tell(conversation, reply)

    async def play(self, task: Task, seed: int, endpoint: Endpoint) -> None:
        """See `LiveEnvironment.play`. With `on_error` "score", what the agent raises is its outcome."""
        outcome: Any
        try:
            with boundary(EnvironmentFault, "the agent"):
                if isinstance(self._agent, SandboxedCommand):
                    outcome = await self._agent.play(task, endpoint)
                elif callable(self._agent):
                    outcome = await run_method(self._agent, task, endpoint.base_url, endpoint.api_key)
                else:
                    outcome = await run_command(self._agent, task, endpoint)
        except TurnwiseError as error:
            if self._on_error != "score" or isinstance(error, SandboxError):
                raise
            outcome = error.__cause__ or error
        self._played = (task, seed, endpoint, outcome)

    def choose_roots(self, roots: Sequence[ConversationOpening]) -> Sequence[bool]:
        """See `LiveEnvironment.choose_roots`."""
        if self._train_roots == "first":
            return [at == 0 for at in range(len(roots))]
        offered = [bool(root.tools) for root in roots]
        return offered if self._train_roots == "tools" and any(offered) else [True] * len(roots)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Judge the outcome; a demonstration is judged by the family's own environment."""
        if self._played is None:
            reward = (await self._asking.score(replies, end))[AGENT]
        else:
            reward = await self._judge(next(iter(replies.values()), ()), end.stop)
        return {role.name: reward for role in self.spec.roles}

    async def close(self) -> None:
        """Close the family's own environment."""
        await self._asking.close()

    async def _judge(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        assert self._played is not None
        task, seed, endpoint, outcome = self._played
        if self._score is not None:
            return to_reward(await run_method(self._score, task, outcome), "the score of the agent's outcome")
        if (posted := endpoint.read_posted()) is not None:
            return posted
        if isinstance(outcome, Scored | Invalid | int | float):
            return to_reward(outcome, "the agent's outcome")
        await self._asking.begin(task, seed)
        return await judge(self.base, replies, stop)


def to_reward(value: object, what: str) -> Reward:
    """Convert a number or a reward. Raises EnvironmentFault for anything else."""
    if isinstance(value, Scored | Invalid):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return Scored(total=float(value))
    raise EnvironmentFault(f"{what} is {value!r:.60}; return a finite number or a reward")
