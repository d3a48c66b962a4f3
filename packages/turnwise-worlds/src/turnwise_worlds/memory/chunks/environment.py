"""One stream, read chunk by chunk: every chunk in its own conversation, which sees only the memory written so far.

MemAgent (arXiv 2507.02259): the policy reads the question, its memory and one chunk, and writes a new memory, which
replaces the old one. A last conversation sees the question and the memory, and answers. Each conversation starts empty,
so the context never grows; all of them belong to one trajectory and share its reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.episodes import AGENT, Ask, Asked, EpisodeEnd, EpisodeSpec
from turnwise.core.errors import EnvironmentFault
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, Scored, StopReason, Task, text_message
from turnwise.rewards.answers import extract_answer
from turnwise_worlds.memory.chunks.arguments import ChunksArguments
from turnwise_worlds.memory.chunks.stream import build_stream, format_memory, parse_memory
from turnwise_worlds.memory.words import NONE, VALUES

ANSWER = "answer"
"""Name of the last conversation."""


def build_prompt(asked: Sequence[str], memory: str, words: Sequence[str] | None) -> tuple[Message, ...]:
    """Build the opening of a chunk's conversation, or of the answer's if `words` is None."""
    section = "answer" if words is None else f"section {' '.join(words)} write"
    return (text_message("user", f" question {' '.join(asked)} memory {memory} {section}"),)


class ChunksEnvironment:
    """Implements `AskingEnvironment`. Everything random comes from the task's seed."""

    def __init__(self, chosen: ChunksArguments) -> None:
        """Declares one role with one reply per chunk and one for the answer."""
        self.spec = EpisodeSpec(max_replies=chosen.chunks + 1, can_replay=True)
        self._chosen = chosen
        self._asked: tuple[str, ...] = ()
        self._memory = ""
        self._next = 0
        """The chunk to be read next."""
        self._overflowed = False

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for the memory of the first chunk."""
        chosen = self._chosen
        self._seed, self._asked = int(task.payload["seed"]), tuple(task.payload["asked"])
        self._stream = build_stream(self._seed, self._asked, num_chunks=chosen.chunks, chunk_events=chosen.chunk_events)
        self._memory = format_memory(dict.fromkeys(self._asked, NONE))
        return self._ask()

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept a memory, or the answer."""
        if conversation == ANSWER:
            return Asked(asks=())
        if conversation != self._name(self._next - 1):
            raise EnvironmentFault(f"ChunksEnvironment got a reply in {conversation!r}, where it had not asked for one")
        self._memory = extract_answer(reply.text) or ""
        if len(self._memory.split()) > self._chosen.max_memory_words:
            self._overflowed = True
            return Asked(asks=())
        return self._ask()

    async def score(self, replies: Mapping[str, Sequence[Message]], end: EpisodeEnd) -> Mapping[str, Reward]:
        """Return the share of right answers; "success" means that all are right."""
        told = replies.get(ANSWER, ()) if end.stop is StopReason.DONE else ()
        given = parse_memory(extract_answer(told[-1].text) or "" if told else "", self._asked)
        right = sum(given[slot] == word for slot, word in self._stream.answer.items())
        parts = {"success": right == len(self._asked), "overflow": self._overflowed}
        return {AGENT: Scored.of(right / len(self._asked), parts)}

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def state_hash(self) -> str:
        """Return a hash that is equal if the next chunk and the memory are equal."""
        return f"{self._seed}/{self._next}/{self._memory}"

    def _ask(self) -> Asked:
        number, is_last = self._next, self._next == self._chosen.chunks
        self._next += 1
        memory = self._memory
        if self._chosen.memory == "erased":
            memory = format_memory(dict.fromkeys(self._asked, NONE))
        elif self._chosen.memory == "swapped" and is_last:
            random = rng(self._seed, "swapped")
            memory = format_memory({slot: slot + random.choice(VALUES) for slot in self._asked})
        words = None if is_last else self._stream.chunks[number]
        name = ANSWER if is_last else self._name(number)
        return Asked(asks=(Ask(conversation=name, messages=build_prompt(self._asked, memory, words)),))

    def _name(self, chunk: int) -> str:
        return f"chunk{chunk}"
