"""One stream of events, recorded in a bounded store: every event has its own conversation, which sees the store.

Memory-R1 (arXiv 2508.19828): for every event the policy adds a line to the store, updates one, deletes one, or does
nothing; a last conversation sees the store and answers. The question is not known in advance. A line beyond the store's
capacity ends the episode without success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.episodes import AGENT, Ask, Asked, EpisodeEnd, EpisodeSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.memory.operations.arguments import OperationsArguments
from turnwise_worlds.memory.operations.events import build_events
from turnwise_worlds.memory.operations.store import Lines, apply

ANSWER = "answer"
"""Name of the last conversation."""


def build_prompt(lines: Lines, word: str) -> tuple[Message, ...]:
    """Build the opening of an event's conversation."""
    return (text_message("user", f" store {' '.join((*lines, ''))}event {word}"),)


def build_question(lines: Lines, slot: str) -> tuple[Message, ...]:
    """Build the opening of the answer's conversation."""
    return (text_message("user", f" store {' '.join((*lines, ''))}ask {slot}"),)


class OperationsEnvironment:
    """Implements `AskingEnvironment`. Everything random comes from the task's seed."""

    def __init__(self, chosen: OperationsArguments) -> None:
        self.spec = EpisodeSpec(max_replies=chosen.events + 1, can_replay=True)
        self._chosen = chosen
        self._lines: Lines = ()
        self._next = 0
        """The event to be read next."""
        self._overflowed = False

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for the operation on the first event."""
        self._seed = int(task.payload["seed"])
        self._events = build_events(self._seed, count=self._chosen.events, max_open=self._chosen.max_open)
        return self._ask()

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept an operation, or the answer."""
        if conversation == ANSWER:
            return Asked(asks=())
        if conversation != f"event{self._next - 1}":
            raise EnvironmentFault(
                f"OperationsEnvironment got a reply in {conversation!r}, where it had not asked for one"
            )
        self._lines = apply(self._lines, extract_answer(reply.text) or "")
        self._overflowed = len(self._lines) > self._chosen.capacity
        return Asked(asks=()) if self._overflowed else self._ask()

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return 1 for the right word, with or without the slot before it."""
        told = replies.get(ANSWER, ()) if end.stop is StopReason.DONE else ()
        said = (extract_answer(told[-1].text) or "").split() if told else []
        success = float(said in ([self._events.answer], [self._events.asked, self._events.answer]))
        return {AGENT: Scored.of(success, {"success": success, "overflow": self._overflowed})}

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def state_hash(self) -> str:
        """Return a hash that is equal if the next event and the store are equal."""
        return f"{self._seed}/{self._next}/{' '.join(self._lines)}"

    def _ask(self) -> Asked:
        number, self._next = self._next, self._next + 1
        if self._chosen.memory == "erased":
            self._lines = ()
        if number == self._chosen.events:
            return Asked(asks=(Ask(conversation=ANSWER, messages=build_question(self._lines, self._events.asked)),))
        prompt = build_prompt(self._lines, self._events.words[number])
        return Asked(asks=(Ask(conversation=f"event{number}", messages=prompt),))
