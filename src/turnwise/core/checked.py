"""Wraps environments for the code that plays them: each becomes an asking environment whose answers are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turnwise.core.episodes import AGENT, MAIN, Ask, Asked, AskingEnvironment, EpisodeEnd, EpisodeSpec
from turnwise.core.errors import ConfigError, EnvironmentFault, RewardError
from turnwise.core.holding import named
from turnwise.core.protocols import Environment, Opening, StepResult
from turnwise.core.returned import (
    read_all,
    read_messages,
    read_records,
    read_reward,
    read_rewards,
    read_scores,
    read_signals,
    read_specs,
    read_truth,
    show,
)
from turnwise.core.threads import OwnThread, run_method
from turnwise.core.types import Invalid, Message, Reward, StopReason, Task


async def judge(environment: Environment, replies: Sequence[Message], stop: StopReason) -> Reward:
    """Return the reward of an episode, checked: Invalid, with the reason, if `score` returns something that is not a
    reward."""
    where = f"{type(environment).__name__}.score"
    work = run_method(environment.score, replies, stop, thread=_find_thread(environment))
    try:
        return read_reward(await named(where, work), where)
    except RewardError as error:  # a judge without a verdict, or a reward that could not be computed
        return Invalid(reason=str(error), retryable=True)


def _find_thread(environment: object) -> OwnThread | None:
    """Return the thread of the environment's plain functions; None if it has none."""
    thread = getattr(environment, "thread", None)
    return thread if isinstance(thread, OwnThread) else None


@dataclass(slots=True, eq=False)
class OneConversation:
    """An `Environment` as an `AskingEnvironment`. Checks what the environment returns.

    Its methods may be plain functions; these run in its `thread` if it has one, and never block the event loop.
    """

    environment: Environment
    spec: EpisodeSpec = field(default_factory=EpisodeSpec)

    async def begin(self, task: Task, seed: int) -> Asked:
        """See `Environment.reset`. Raises EnvironmentFault that names what was returned instead of an opening."""
        opening = await self._call("reset", self.environment.reset, task, seed)
        where = self._name("reset")
        if not isinstance(opening, Opening):
            raise EnvironmentFault(f"{where} returned {show(opening)}; return Opening(messages=..., tools=...)")
        messages = read_messages(opening.messages, f"the messages of {where}")
        return Asked(asks=(Ask(messages=messages, tools=read_specs(opening.tools, f"the tools of {where}")),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """See `Environment.step`. Raises EnvironmentFault that names what was returned instead of a result."""
        result = await self._call("step", self.environment.step, reply)
        where = self._name("step")
        if not isinstance(result, StepResult):
            raise EnvironmentFault(f"{where} returned {show(result)}; return StepResult(observations=..., done=...)")
        observations = read_messages(result.observations, f"the observations of {where}")
        is_over = read_truth(result.done, f"done of {where}")
        return Asked(
            asks=() if is_over else (Ask(messages=observations),),
            observations=observations if is_over else (),
            tool_records=read_records(result.tool_records, f"the tool records of {where}"),
            scores=read_scores(result.scores, where),
            signals=read_signals(result.signals, where),
        )

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """See `Environment.score`; anything that is not a reward becomes Invalid."""
        return {AGENT: await judge(self.environment, replies.get(MAIN, ()), end.stop)}

    async def close(self) -> None:
        """See `Environment.close`."""
        await self._call("close", self.environment.close)

    def _name(self, method: str) -> str:
        return f"{type(self.environment).__name__}.{method}"

    async def _call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        return await named(self._name(name), run_method(method, *arguments, thread=_find_thread(self.environment)))


@dataclass(slots=True, eq=False)
class SeveralConversations:
    """An `AskingEnvironment` whose answers are checked."""

    environment: AskingEnvironment
    spec: EpisodeSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = self.environment.spec

    async def begin(self, task: Task, seed: int) -> Asked:
        """See `AskingEnvironment.begin`. Raises EnvironmentFault that names what is wrong with an ask."""
        where = self._name("begin")
        return _read_asked(await named(where, self.environment.begin(task, seed)), where)

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """See `AskingEnvironment.tell`. Raises EnvironmentFault that names what is wrong with an ask."""
        where = self._name("tell")
        return _read_asked(await named(where, self.environment.tell(conversation, reply)), where)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """See `AskingEnvironment.score`; anything that is not a reward becomes Invalid. Raises EnvironmentFault if a
        role has no reward."""
        where = self._name("score")
        try:
            rewards = await named(where, self.environment.score(replies, end))
        except RewardError as error:
            return {role.name: Invalid(reason=str(error), retryable=True) for role in self.spec.roles}
        return read_rewards(rewards, [role.name for role in self.spec.roles], where)

    async def close(self) -> None:
        """See `AskingEnvironment.close`."""
        await named(self._name("close"), self.environment.close())

    def _name(self, method: str) -> str:
        return f"{type(self.environment).__name__}.{method}"


def _read_asked(asked: object, where: str) -> Asked:
    if not isinstance(asked, Asked):
        raise EnvironmentFault(f"{where} returned {show(asked)}; return Asked(asks=...)")
    asks = tuple(
        replace(
            ask,
            messages=read_messages(ask.messages, f"the messages of {where} in conversation {ask.conversation!r}"),
            tools=read_specs(ask.tools, f"the tools of {where} in conversation {ask.conversation!r}"),
        )
        for ask in read_all(asked.asks, Ask, f"the asks of {where}")
    )
    return Asked(
        asks=asks,
        observations=read_messages(asked.observations, f"the observations of {where}"),
        tool_records=read_records(asked.tool_records, f"the tool records of {where}"),
        scores=read_scores(asked.scores, where),
        signals=read_signals(asked.signals, where),
    )


def to_asking(environment: Environment | AskingEnvironment) -> OneConversation | SeveralConversations:
    """Wrap the environment as one that asks, with every answer checked."""
    if isinstance(environment, OneConversation | SeveralConversations):
        return environment
    if isinstance(environment, AskingEnvironment):
        return SeveralConversations(environment)
    return OneConversation(environment)


def to_single(environment: Environment | AskingEnvironment) -> Environment:
    """Return the environment as one with a single conversation, for callers that can play no other. Raises ConfigError
    if it is an `AskingEnvironment`."""
    if isinstance(environment, AskingEnvironment):
        raise ConfigError(
            f"{type(environment).__name__} asks for replies in several conversations, but this command plays only one; "
            "train or evaluate on it instead"
        )
    return environment
