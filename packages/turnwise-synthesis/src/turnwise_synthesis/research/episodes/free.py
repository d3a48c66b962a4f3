"""Research led by the agent: it searches, notes and writes in any order, in contexts that restart from its notes.

    part0    the task, no notes                      search, pages, note, search, ...
    part1    the task, its notes, the sections       ...
    part2    the task, its notes, the sections       ... the answer

A context with more words than the window is full: its next observation says so, one more reply is taken in it, and the
following one opens the next context (ReSum, arXiv 2509.13313, with notes that the agent writes by a tool whenever it
wants, and not a summary that it is asked for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwise.core.episodes import Ask, Asked
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Opening
from turnwise.core.types import Message, Task, text_message
from turnwise_synthesis.research.desk import ResearchDesk, list_notes, list_sections
from turnwise_synthesis.research.episodes.contexts import ContextsAtDesk

FULL = "The context is full: note in this reply what you still need. The next one starts from your notes."
NOTES, SECTIONS = "Your notes:", "Sections written:"
"""Headings of what a fresh context knows."""


def write_state(notes: Sequence[str], sections: Mapping[str, str]) -> str:
    """Write what a fresh context knows: the notes, a line each, and the headings of the sections."""
    noted = "\n".join(notes) or "none"
    headings = "\n".join(f"- {heading}" for heading in sections) or "none"
    return f"\n{NOTES}\n{noted}\n\n{SECTIONS}\n{headings}\n"


class FreeResearch(ContextsAtDesk):
    """Implements `AskingEnvironment`."""

    def __init__(self, desk: ResearchDesk, *, has_memory: bool, window_words: int, max_contexts: int) -> None:
        """Without `has_memory` no context shows notes or sections."""
        super().__init__(desk)
        self._has_memory, self._window_words, self._max_contexts = has_memory, window_words, max_contexts
        self._opening = Opening(messages=(), tools=())
        self._part = self._words = 0
        self._is_full = False

    async def begin(self, task: Task, seed: int) -> Asked:
        """Open the first context."""
        self._opening = await self._desk.reset(task, seed)
        return Asked(asks=(self._ask_part(),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept calls, or the answer."""
        if conversation != f"part{self._part}":
            raise EnvironmentFault(f"FreeResearch got a reply in {conversation!r}, where it had not asked for one")
        result = await self._desk.step(reply)
        if result.done:
            self._answer = reply
            return Asked(asks=(), tool_records=result.tool_records)
        if self._is_full:
            self._part += 1
            asks = (self._ask_part(),) if self._part < self._max_contexts else ()
            return Asked(asks=asks, observations=result.observations, tool_records=result.tool_records)
        self._count(reply, *result.observations)
        self._is_full = self._words > self._window_words
        messages = (*result.observations, *((text_message("user", FULL),) if self._is_full else ()))
        return Asked(asks=(Ask(conversation=conversation, messages=messages),), tool_records=result.tool_records)

    def _ask_part(self) -> Ask:
        notes, sections = list_notes(self._desk.tool_records), list_sections(self._desk.tool_records)
        state = write_state(notes, sections) if self._has_memory else write_state([], {})
        *before, last = self._opening.messages
        messages = (*before, text_message("user", last.text.rstrip("\n") + "\n" + state))
        self._words, self._is_full = 0, False
        self._count(*messages)
        return Ask(conversation=f"part{self._part}", messages=messages, tools=self._opening.tools)

    def _count(self, *messages: Message) -> None:
        texts = [text for each in messages for text in (each.text, *(call.arguments for call in each.tool_calls))]
        self._words += sum(len(text.split()) for text in texts)
