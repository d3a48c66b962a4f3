"""Episodes with several conversations and several roles: an environment that asks for replies.

The environment is a state machine. It asks for replies, several at a time, and is told them one by one in the order in
which it asked, whatever the order in which they arrive: what an episode does is a function of its seeds and its replies
alone, so it can be played again from what was stored.

    begin            asks for A, B      A and B are sampled at the same time
    tell A           asks for C         C is sampled
    tell B           asks for nothing
    tell C           asks for nothing   nothing is wanted any more: the episode is over

An `Environment` is the case of one role and one conversation (`core.checked.OneConversation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
