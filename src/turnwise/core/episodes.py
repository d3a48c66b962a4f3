"""Episodes with several conversations and several roles: an environment that asks for replies.

The environment is a state machine. It asks for replies, several at a time, and receives them one by one in the order in
which it asked, whatever the order in which they arrive: an episode is a function of its seeds and replies alone, so it
can be replayed from what was stored.

    begin            asks for A, B      A and B are sampled at the same time
    tell A           asks for C         C is sampled
    tell B           asks for nothing
    tell C           asks for nothing   nothing is wanted any more: the episode is over

An `Environment` is the special case of one role and one conversation (`core.checked.OneConversation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from turnwise.core.types import (
    NO_SCORES,
    Compare,
    ConversationOpening,
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
ASIDE = "aside"
"""The role of conversations beside the agent's own. It follows the policy and does not learn, unless the recipe says
otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSpec:
    """What an environment declares about one of its roles."""

    name: str
    compare: Compare = "task"
    """Which trajectories credit compares its trajectories with."""
    max_open: int = 1
    """Maximum number of replies by this role that may be wanted at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRule:
    """How the requests of a program that keeps its conversations itself are matched with what was sampled."""

    reasoning: Literal["keep", "follow"] = "keep"
    """What a request means that leaves out a reply's reasoning. "keep": nothing; the reasoning stays in the context.
    "follow": the context is what the request says, rendered from its beginning as a conversation of its own."""
    on_rewrite: Literal["branch", "refuse"] = "branch"
    """What becomes of a request whose earlier messages are not those received and delivered. "branch": a conversation
    of its own. "refuse": an error that says what differs."""
    model: str = "policy"
    """The name of the model that requests ask for; with a slash and a role behind it, the role is named too."""


ANY_REQUESTS = RequestRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSpec:
    """What an environment declares about its episodes: the same for all tasks of a family."""

    roles: tuple[RoleSpec, ...] = (RoleSpec(name=AGENT),)
    max_replies: int | None = None
    """Maximum number of replies by all roles together; a longer episode ends as `max_turns`. None: only the limits of
    each conversation apply."""
    max_depth: int = 0
    """Maximum depth of conversations that call one another (`Ask.caller`): 1 lets a conversation call others, which may
    call none. A deeper call ends the episode as `max_depth`."""
    requests: RequestRule = ANY_REQUESTS
    """Read where a program asks for its replies by itself (`LiveEnvironment`)."""
    can_replay: bool = False
    """Whether an audit may replay stored replies without permission: the environment touches nothing outside and is not
    slow."""

    def role(self, name: str) -> RoleSpec | None:
        """Return the role with that name; None if there is none."""
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for one reply."""

    messages: tuple[Message, ...]
    """The messages that open the conversation, or that continue it."""
    role: str = AGENT
    conversation: str = MAIN
    """A name that is new in the episode opens a conversation, which starts empty; a known one continues that
    conversation."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools on offer; read only when a conversation opens."""
    caller: str | None = None
    """The conversation that called this one, read when it opens; None if none did."""
    inherits: bool = False
    """The conversation opens on top of its caller's history, after the reply that was just told, instead of from
    nothing. What both share is stored, sampled and trained once. Both conversations have the same role; read when it
    opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an environment returns for a reply, or at the beginning."""

    asks: tuple[Ask, ...]
    """Replies that are wanted from now on, in addition to those still outstanding. The episode is over when none is
    left."""
    observations: tuple[Message, ...] = ()
    """The closing messages of the conversation that was told, if it ends; messages that continue it are in its
    `Ask`."""
    tool_records: tuple[ToolRecord, ...] = ()
    """Records of the tool calls in the reply."""
    scores: TurnScores = NO_SCORES
    """Measurements of the reply for credit."""
    signals: tuple[Signal, ...] = ()
    """Further numbers about the reply, stored and plotted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnd:
    """Why an episode ended."""

    stop: StopReason
    conversation: str | None = None
    """The conversation that reached a limit; None if no limit was reached."""


@runtime_checkable
class AskingEnvironment(Protocol):
    """One episode of one task. Single use: begin once, tell until nothing is wanted, score, close.

    As for an `Environment`, `score` is called before `close`, at most once; any exception from a method makes the
    rewards of the whole episode Invalid and never ends the run.
    """

    spec: EpisodeSpec

    async def begin(self, task: Task, seed: int) -> Asked:
        """Open the episode. `seed` covers every random choice the environment makes."""
        ...

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Receive the model's parsed reply in a conversation. May raise `ToolTimeout`."""
        ...

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Judge the episode: return a reward for every role of the spec. `replies` has the replies of every
        conversation by name, including one that a limit cut off."""
        ...

    async def close(self) -> None:
        """Free what `begin` allocated. Called once, whatever happened."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a program reaches the policy that plays its episode, by the protocols of other people's clients."""

    url: str
    """Root of the session, without a slash at its end. Clients of messages take it, others take `base_url`."""
    api_key: str
    model: str
    """The name to ask for."""
    read_posted: Callable[[], Reward | None]
    """Returns the last reward that was posted for the session; None if none was."""
    refuse_rewards: Callable[[], None]
    """Makes the session refuse every reward that is posted from now on."""

    @property
    def base_url(self) -> str:
        """The URL for chat, completions and responses."""
        return f"{self.url}/v1"


@runtime_checkable
class LiveEnvironment(AskingEnvironment, Protocol):
    """Optional for an asking environment: a program outside asks for replies whenever it wants to, at an endpoint.

    A rollout plays it by `play` instead of `begin` and `tell`, which serve what needs no program: the checks of a start
    and demonstrations. `score` follows `play`. Such an episode cannot be replayed.
    """

    async def play(self, task: Task, seed: int, endpoint: Endpoint) -> None:
        """Run the program to its end. Cancelled at the episode's deadline; whatever it raises makes the rewards
        Invalid."""
        ...

    def choose_roots(self, roots: Sequence[ConversationOpening]) -> Sequence[bool]:
        """Return which of the conversations that began from nothing train, in the order in which they opened."""
        ...
