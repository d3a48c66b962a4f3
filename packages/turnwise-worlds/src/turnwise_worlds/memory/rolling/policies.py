"""Scripted policies of the search world that act in a window and write notes.

A note says what to look up next ("birthplace of Mira Tolen"), or is the answer if nothing is left to look up.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.policies import Conversation, search_message
from turnwise.environments.search_qa.projection import parse
from turnwise.environments.search_qa.wordings import innermost_phrase, list_relations
from turnwise_worlds.memory.rolling.environment import WRITE, read_note
from turnwise_worlds.memory.words import NONE


class NotingPolicy:
    """Searches for what its note says, and at first for the relation next to the question's entity; answers with a note
    that is a name. With probability `keep` it notes what to look up next, otherwise only the name that it found. With
    `keep=1` it is the oracle."""

    def __init__(self, keep: float) -> None:
        self._keep = keep

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        query, seen, note = parse(task.payload["query"]), Conversation.of(messages), read_note(messages[0])
        if seen.queries:
            note = self._write(list_relations(query), seen, rng)
            if messages[-1].text == WRITE:
                return answer_message(note)
        if note != NONE and " of " not in note:
            return answer_message(note)
        return search_message(innermost_phrase(query) if note == NONE else note, len(seen.queries))

    def _write(self, relations: Sequence[str], seen: Conversation, rng: Random) -> str:
        relation, _, subject = seen.queries[-1].partition(" of ")
        found = next((o for r, s, o in seen.facts() if (r, s) == (relation, subject)), NONE)
        place = relations.index(relation)
        is_kept = rng.random() < self._keep
        return f"{relations[place - 1]} of {found}" if place and is_kept else found
