"""Episodes with several conversations and several roles: an environment that asks for replies.

The environment is a state machine. It asks for replies, several at a time, and is told them one by one in the order in
which it asked, whatever the order in which they arrive: what an episode does is a function of its seeds and its replies
alone, so it can be played again from what was stored.

    begin            asks for A, B      A and B are sampled at the same time
    tell A           asks for C         C is sampled
    tell B           asks for nothing
    tell C           asks for nothing   nothing is wanted any more: the episode is over

An `Environment` is the case of one role and one conversation (`OneConversation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from turnwise.core.errors import ConfigError, EnvironmentFault
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
from turnwise.core.types import (
    NO_SCORES,
    Compare,
    Message,
    Reward,
    Signal,
    StopReason,
    Task,
    ToolRecord,
    ToolSpec,
    TurnScores,
)

AGENT, MAIN = "agent", "main"
"""The role and the conversation of an `Environment`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """What an environment says about one of its roles."""

    name: str
    compare: Compare = "task"
    """Whom credit compares its trajectories with."""
    max_open: int = 1
    """Most replies of this role that may be wanted at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """What an environment says about its episodes: the same for all tasks of a family."""

    roles: tuple[RoleSpec, ...] = (RoleSpec(name=AGENT),)
    max_replies: int | None = None
    """Most replies of all roles together; a longer episode ends as `max_turns`. None: only the limits of each
    conversation end it."""
    max_depth: int = 0
    """How deep conversations may call one another (`Ask.caller`): 1 lets a conversation call others, which call none.
    A deeper call ends the episode as `max_depth`."""
    can_replay: bool = False
    """Whether an audit may play stored replies again without leave: nothing outside is touched and nothing is slow."""

    def role(self, name: str) -> RoleSpec | None:
        """The role of that name; None if there is none."""
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One reply is wanted."""

    messages: tuple[Message, ...]
    """What the conversation opens with, or what it goes on with."""
    role: str = AGENT
    conversation: str = MAIN
    """A name that is new in the episode opens a conversation, which starts from nothing; a known one goes on."""
    tools: tuple[ToolSpec, ...] = ()
    """Read where it opens a conversation."""
    caller: str | None = None
    """The conversation that called this one, read where it opens; None if none did."""
    inherits: bool = False
    """The conversation opens on top of its caller's history, after the reply that was just told, instead of from
    nothing. What both share is stored, sampled and trained once. Caller and called are of one role; read where it
    opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an environment answers to a reply, or to the beginning."""

    asks: tuple[Ask, ...]
    """Replies that are wanted from now on, besides those that still are. The episode is over when none is."""
    observations: tuple[Message, ...] = ()
    """What the told conversation ends with, if it does; what it goes on with is in its `Ask`."""
    tool_records: tuple[ToolRecord, ...] = ()
    """What the reply did."""
    scores: TurnScores = NO_SCORES
    """What credit reads about the reply."""
    signals: tuple[Signal, ...] = ()
    """Further numbers about the reply, stored and plotted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnd:
    """Why an episode ended."""

    stop: StopReason
    conversation: str | None = None
    """The conversation that reached a limit; None if none did."""


@runtime_checkable
class AskingEnvironment(Protocol):
    """One episode of one task. Single use: begin once, tell until nothing is wanted, score, close.

    As for an `Environment`, `score` is called before `close`, at most once, and whatever a method raises makes the
    rewards of the whole episode Invalid and never ends the run.
    """

    spec: EpisodeSpec

    async def begin(self, task: Task, seed: int) -> Asked:
        """Open the episode. `seed` covers every random choice the environment makes."""
        ...

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Take the model's parsed reply in a conversation. May raise `ToolTimeout`."""
        ...

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Judge the episode: a reward for every role of the spec. `replies` are those of every conversation by name, a
        reply that a limit cut off included."""
        ...

    async def close(self) -> None:
        """Free what `begin` took. Called once, whatever happened."""
        ...


async def judge(environment: Environment, replies: Sequence[Message], stop: StopReason) -> Reward:
    """The reward of an episode, checked: Invalid, with the reason, where what `score` returns is none."""
    where = f"{type(environment).__name__}.score"
    work = run_method(environment.score, replies, stop, thread=_find_thread(environment))
    return read_reward(await named(where, work), where)


def _find_thread(environment: object) -> OwnThread | None:
    """The thread of the environment's plain functions, where it has one."""
    thread = getattr(environment, "thread", None)
    return thread if isinstance(thread, OwnThread) else None


@dataclass(slots=True, eq=False)
class OneConversation:
    """An `Environment` as an `AskingEnvironment`. What the environment returns is checked.

    Its methods may be plain functions, which run in its `thread`, where it has one, and never hold the event loop.
    """

    environment: Environment
    spec: EpisodeSpec = field(default_factory=EpisodeSpec)

    async def begin(self, task: Task, seed: int) -> Asked:
        """See `Environment.reset`. Raises EnvironmentFault naming what it returned instead of an opening."""
        opening = await self._call("reset", self.environment.reset, task, seed)
        where = self._name("reset")
        if not isinstance(opening, Opening):
            raise EnvironmentFault(f"{where} returned {show(opening)}; return Opening(messages=..., tools=...)")
        messages = read_messages(opening.messages, f"the messages of {where}")
        return Asked(asks=(Ask(messages=messages, tools=read_specs(opening.tools, f"the tools of {where}")),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """See `Environment.step`. Raises EnvironmentFault naming what it returned instead of a result."""
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
        """See `Environment.score`; what is no reward is Invalid."""
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
        """See `AskingEnvironment.begin`. Raises EnvironmentFault naming what is wrong with what it asks."""
        where = self._name("begin")
        return _read_asked(await named(where, self.environment.begin(task, seed)), where)

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """See `AskingEnvironment.tell`. Raises EnvironmentFault naming what is wrong with what it asks."""
        where = self._name("tell")
        return _read_asked(await named(where, self.environment.tell(conversation, reply)), where)

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """See `AskingEnvironment.score`; what is no reward is Invalid. Raises EnvironmentFault for a role without
        one."""
        where = self._name("score")
        rewards = await named(where, self.environment.score(replies, end))
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
    """The environment as one that asks, with every answer checked."""
    if isinstance(environment, OneConversation | SeveralConversations):
        return environment
    if isinstance(environment, AskingEnvironment):
        return SeveralConversations(environment)
    return OneConversation(environment)


def to_single(environment: Environment | AskingEnvironment) -> Environment:
    """The environment as one of a single conversation, for what can play no other. Raises ConfigError if it asks."""
    if isinstance(environment, AskingEnvironment):
        raise ConfigError(
            f"{type(environment).__name__} asks for replies in several conversations, and here one is played; train or "
            "evaluate on it instead"
        )
    return environment
