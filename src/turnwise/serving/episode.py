"""One episode whose replies come from outside, in any order; the environment receives them in the order it asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from turnwise.core.checked import OneConversation, to_asking
from turnwise.core.closing import close_environment
from turnwise.core.episodes import Ask, Asked, AskingEnvironment, EpisodeEnd
from turnwise.core.errors import EnvironmentFault, boundary
from turnwise.core.protocols import Environment
from turnwise.core.types import Invalid, Message, Reward, StopReason, Task, ToolSpec
from turnwise.core.wanted import Wanted

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the environment returned for one reply."""

    ask: Ask
    """The ask that was replied to."""
    reply: Message
    asked: Asked


class OutsideEpisode:
    """One episode: `begin`, `reply` until it is over, `score`, `close`. Single use, one call at a time.

    All asks of the environment, at any time, enter through `_take`.
    """

    def __init__(
        self,
        environment: Environment | AskingEnvironment,
        task: Task,
        *,
        seed: int,
        max_turns: int | None = None,
        where: str = "",
    ) -> None:
        """`max_turns` is the maximum number of replies in a conversation, None for no limit. `where` names the episode
        in errors; if empty, its task does."""
        self.task = task
        self.replies: dict[str, list[Message]] = {}
        """Replies that the environment received, by conversation."""
        self.tools: dict[str, tuple[ToolSpec, ...]] = {}
        """Tools with which each conversation opened."""
        self.is_broken = False
        """A call failed or was cancelled: the environment's state is unknown, and the episode is over."""
        self.is_closed = False
        self._seed, self._max_turns = seed, max_turns
        self._where = where or f"task {task.id}"
        self._environment = to_asking(environment)
        self._wanted = Wanted(spec=self._environment.spec, where=self._where)
        self._held: dict[str, Message] = {}
        """Replies held back until an earlier ask has its reply."""
        self._limit: EpisodeEnd | None = None

    @property
    def is_single(self) -> bool:
        """Whether one role speaks in one conversation: an `Environment`."""
        return isinstance(self._environment, OneConversation)

    @property
    def wanted(self) -> tuple[Ask, ...]:
        """Asks without a reply, in the order in which they were made; empty if the episode is over."""
        if self.is_broken or self.is_truncated:
            return ()
        return tuple(ask for name, ask in self._wanted.asks.items() if name not in self._held)

    @property
    def first(self) -> Ask | None:
        """The earliest ask whose reply the environment has not received, even after a limit has ended the episode."""
        return next(iter(self._wanted.asks.values()), None)

    @property
    def num_replies(self) -> int:
        """Number of replies that the environment received."""
        return self._wanted.num_replies

    @property
    def is_done(self) -> bool:
        """Whether the environment ended the episode."""
        return not self.is_broken and not self._wanted.asks and self._limit is None

    @property
    def is_truncated(self) -> bool:
        """Whether a limit ended it."""
        return self._limit is not None

    @property
    def is_over(self) -> bool:
        """Whether further replies are refused."""
        return self.is_broken or self.is_truncated or not self._wanted.asks

    async def begin(self) -> None:
        """Open the episode. Raises EnvironmentFault when the environment fails."""
        self._take(await self._run("opening", lambda: self._environment.begin(self.task, self._seed)))

    async def reply(self, message: Message, conversation: str | None = None) -> tuple[Answer, ...]:
        """Accept a reply to the ask in a conversation; None: to the earliest ask.

        Returns what the environment answered, reply by reply: nothing while an earlier ask has no reply. Raises
        EnvironmentFault if no reply is wanted there, and when the environment fails.
        """
        self._held[self._find(conversation)] = message
        answers = []
        while not self.is_over and (first := next(iter(self._wanted.asks))) in self._held:
            answers.append(await self._tell(first))
        return tuple(answers)

    async def score(self) -> Mapping[str, Reward]:
        """Return the reward of every role for the replies so far. Raises EnvironmentFault when the environment
        fails."""
        end = self._limit or EpisodeEnd(stop=StopReason.DONE)
        if self._limit is None and self._wanted.asks:
            end = EpisodeEnd(stop=StopReason.MAX_TURNS, conversation=next(iter(self._wanted.asks)))
        replies = {name: list(told) for name, told in self.replies.items()}
        for name, held in self._held.items():  # a reply counts even if the environment never received it
            replies.setdefault(name, []).append(held)
        return await self._run("the score of", lambda: self._environment.score(replies, end))

    async def close(self) -> str | None:
        """Close the environment; returns what went wrong, None if nothing. A second call does nothing."""
        if self.is_closed:
            return None
        self.is_closed = True
        return await close_environment(self._environment)

    def _find(self, conversation: str | None) -> str:
        """Return the conversation whose ask a reply is for."""
        names = [ask.conversation for ask in self.wanted]
        if not names:
            raise EnvironmentFault(f"no reply is expected in {self._where}: the episode is over")
        if conversation is None:
            return names[0]
        if conversation not in names:
            raise EnvironmentFault(
                f"no reply is expected in conversation {conversation[:50]!r}, only in {', '.join(names)}"
            )
        return conversation

    async def _tell(self, name: str) -> Answer:
        ask, reply = self._wanted.tell(name), self._held.pop(name)
        self.replies.setdefault(name, []).append(reply)
        asked = await self._run("a step of", lambda: self._environment.tell(name, reply))
        self._take(asked)
        return Answer(ask=ask, reply=reply, asked=asked)

    def _take(self, asked: Asked) -> None:
        try:
            for ask in asked.asks:
                self.tools.setdefault(ask.conversation, ask.tools)
                self._limit = self._limit or self._wanted.ask(ask)
                if self._max_turns is not None and len(self.replies.get(ask.conversation, ())) >= self._max_turns:
                    stop = EpisodeEnd(stop=StopReason.MAX_TURNS, conversation=ask.conversation)
                    self._limit = self._limit or stop
        except EnvironmentFault:
            self.is_broken = True
            raise

    async def _run(self, what: str, work: Callable[[], Awaitable[Result]]) -> Result:
        try:
            with boundary(EnvironmentFault, f"{what} {self._where}"):
                return await work()
        except BaseException:
            self.is_broken = True
            raise


def choose_reward(rewards: Mapping[str, Reward]) -> Reward:
    """Choose one reward for callers that expect one: the first role's, or an Invalid one if any role has one."""
    return next((reward for reward in rewards.values() if isinstance(reward, Invalid)), next(iter(rewards.values())))
