"""An episode that an agent plays at an endpoint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.core.checked import judge, to_asking
from turnwise.core.episodes import (
    AGENT,
    ANY_REQUESTS,
    ASIDE,
    Asked,
    AskingEnvironment,
    Endpoint,
    EpisodeEnd,
    EpisodeSpec,
    LiveEnvironment,
    RequestRule,
    RoleSpec,
)
from turnwise.core.errors import ConfigError, EnvironmentFault, SandboxError, TurnwiseError, boundary
from turnwise.core.protocols import Environment
from turnwise.core.returned import show
from turnwise.core.threads import run_method
from turnwise.core.types import ConversationOpening, Invalid, Message, Reward, Scored, StopReason, Task
from turnwise.environments.agents.command import run_command
from turnwise.environments.agents.sandboxed import SandboxedCommand

Agent = Callable[[Task, str, str], Any]
"""Plays a task with a client of the base URL and the key; returns its outcome. May be async."""
ROOT_RULES = ("tools", "first", "all")
"""Names of rules that choose the conversations that train."""
ChooseRoots = Callable[[Sequence[ConversationOpening]], Sequence[bool]]
"""Returns which of the conversations that began from nothing train."""
Score = Callable[[Task, Any], Any]
"""Returns the reward of an outcome: a number or a `Reward`, or a dict with one for each role. May be async."""


class AgentEnvironment:
    """Implements `LiveEnvironment`: the tasks of `base`, played by an agent."""

    def __init__(
        self,
        base: Environment | AskingEnvironment,
        agent: Agent | Sequence[str] | SandboxedCommand,
        *,
        score: Score | None = None,
        on_error: str = "invalid",
        train_roots: str | ChooseRoots = "tools",
        requests: RequestRule = ANY_REQUESTS,
        roles: Sequence[str] = (),
    ) -> None:
        """`agent` is a function, a command, or one that runs in the sandbox; the others as in `AgentArguments`. Raises
        ConfigError if `base` is played by a program itself."""
        if isinstance(base, LiveEnvironment):
            raise ConfigError(f"{type(base).__name__} is played by a program already; name the family of its tasks")
        self.base = base
        """The family's own environment."""
        self._asking = to_asking(base)
        own = list(roles) or [AGENT]
        self._first = own[0]
        """The role of what the family's own environment asks of a role that is not among these."""
        has_aside = bool(roles) or train_roots != "all"
        self.spec = build_spec(own, self._asking.spec, requests, has_aside=has_aside)
        self._agent, self._score = agent, score
        self._on_error, self._train_roots = on_error, train_roots
        self._played: tuple[Task, int, Endpoint, Any] | None = None

    async def begin(self, task: Task, seed: int) -> Asked:
        """See `AskingEnvironment.begin`: the family's own environment, for checks and demonstrations."""
        return self._rename(await self._asking.begin(task, seed))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """See `AskingEnvironment.tell`."""
        return self._rename(await self._asking.tell(conversation, reply))

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
        """See `LiveEnvironment.choose_roots`. Raises EnvironmentFault if a function returns anything else."""
        if callable(self._train_roots):
            chosen = self._train_roots(roots)
            if not isinstance(chosen, Sequence) or [type(each) for each in chosen] != [bool] * len(roots):
                raise EnvironmentFault(
                    f"train_roots returned {show(chosen)} for {len(roots)} conversations; return a bool for each"
                )
            return chosen
        if self._train_roots == "first":
            return [at == 0 for at in range(len(roots))]
        offered = [bool(root.tools) for root in roots]
        return offered if self._train_roots == "tools" and any(offered) else [True] * len(roots)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Judge the outcome; a demonstration is judged by the family's own environment."""
        names = [role.name for role in self.spec.roles]
        if self._played is None:
            rewards = await self._asking.score(replies, end)
            [first, *_] = rewards.values()
            return {name: rewards.get(name, first) for name in names}
        judged = await self._judge(next(iter(replies.values()), ()), end.stop)
        if not isinstance(judged, Mapping):
            return dict.fromkeys(names, judged)
        what = "the agent's outcome" if self._score is None else "the score of the agent's outcome"
        own = [name for name in names if name != ASIDE]
        if set(judged) != set(own):
            raise EnvironmentFault(f"{what} is {show(judged)}; return a number, or a dict of {', '.join(own)}")
        given = {name: to_reward(judged[name], f"{what} for {name}") for name in own}
        return {name: given.get(name, given[own[0]]) for name in names}  # nothing is learned from what is aside

    async def close(self) -> None:
        """Close the family's own environment."""
        await self._asking.close()

    def _rename(self, asked: Asked) -> Asked:
        known = {role.name for role in self.spec.roles}
        asks = tuple(ask if ask.role in known else replace(ask, role=self._first) for ask in asked.asks)
        return replace(asked, asks=asks)

    async def _judge(self, replies: Sequence[Message], stop: StopReason) -> Reward | Mapping[str, Any]:
        assert self._played is not None
        task, seed, endpoint, outcome = self._played
        if not replies and not isinstance(outcome, Exception):
            raise EnvironmentFault("the agent received no reply; it must ask the endpoint that it is given")
        if self._score is not None:
            return to_rewards(await run_method(self._score, task, outcome), "the score of the agent's outcome")
        if (posted := endpoint.read_posted()) is not None:
            return posted
        if isinstance(outcome, Scored | Invalid | int | float | Mapping):
            return to_rewards(outcome, "the agent's outcome")
        if isinstance(self.base, AskingEnvironment):
            raise EnvironmentFault(
                f"the agent's outcome is {show(outcome)}, and {type(self.base).__name__} cannot judge it, since it "
                "asks in several conversations; return a number, or set environment.args.score"
            )
        await self._asking.begin(task, seed)
        return await judge(self.base, replies, stop)


def build_spec(roles: Sequence[str], base: EpisodeSpec, requests: RequestRule, *, has_aside: bool) -> EpisodeSpec:
    """Return the spec of an agent's episodes with these roles. Those of the family's own environment that have other
    names speak for the first."""
    open_by: Counter[str] = Counter()
    for role in base.roles:
        open_by[role.name if role.name in roles else roles[0]] += role.max_open
    specs = [RoleSpec(name=name, max_open=max(1, open_by[name])) for name in roles]
    aside = [RoleSpec(name=ASIDE)] if has_aside else []
    return EpisodeSpec(
        roles=(*specs, *aside), max_replies=base.max_replies, max_depth=base.max_depth, requests=requests
    )


def to_rewards(value: object, what: str) -> Reward | Mapping[str, Any]:
    """Return a dict as it is, and convert anything else as `to_reward` does."""
    return value if isinstance(value, Mapping) else to_reward(value, what)


def to_reward(value: object, what: str) -> Reward:
    """Convert a number or a reward. Raises EnvironmentFault for anything else."""
    if isinstance(value, Scored | Invalid):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return Scored(total=float(value))
    raise EnvironmentFault(f"{what} is {value!r:.60}; return a finite number or a reward")
