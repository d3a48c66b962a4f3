"""Present an episode for people: its conversations by role and caller, what was forgotten, what was carried over.

Pure. Reads the plain rows of `store.trajectories`, one for each role of an episode, with their texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.messages import describe_part
from turnwise.store.rows import part_from_json

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One turn of a conversation."""

    turn: Row
    branch_of: int | None
    """Number of the turn in this conversation that it continues, if that is not the previous one."""
    forgot_context: bool
    """Whether later contexts of the role exist, but none contains what was added before the reply."""
    forgot_reply: bool
    """Like `forgot_context`, for the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """One conversation."""

    name: str
    role: str
    caller: str | None
    depth: int
    """Number of callers above the conversation."""
    opening: str
    said: tuple[Said, ...]
    memory: str
    """The part of its last reply with which a later conversation of the role opens; "" if there is none, or if a caller
    opens those conversations, because that text is the caller's."""


def group_episodes(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of every episode, one for each role, in the order of the file."""
    episodes: dict[tuple[int, int, int], list[Row]] = {}
    for row in rows:
        name = row["id"]
        episodes.setdefault((name["draw"], name["member"], name["attempt"]), []).append(row)
    return list(episodes.values())


def find_lead(episode: Sequence[Row]) -> Row:
    """The row an episode is judged by: that of the first role that learns, or of the first role if none does."""
    return next((row for row in episode if row.get("learns", True)), episode[0])


def list_talks(episode: Sequence[Row]) -> list[Talk]:
    """Every conversation of an episode, each after the one that called it; otherwise in the order of the roles."""
    callers = {opening["name"]: opening["caller"] for row in episode for opening in row["conversations"]}
    talks = [talk for row in episode for talk in _list_talks_of(row, callers)]
    names = {talk.name for talk in talks}
    ordered: list[Talk] = []

    def visit(caller: str | None) -> None:
        for talk in talks:
            under = talk.caller if talk.caller in names else None
            if under == caller and talk not in ordered:
                ordered.append(talk)
                visit(talk.name)

    visit(None)
    return ordered


def _list_talks_of(row: Row, callers: Mapping[str, str | None]) -> list[Talk]:
    turns, role = row["turns"], row["id"]["role"]
    openings = row["conversations"]
    if turns and not openings:
        openings = [{"name": "main", "caller": None, "messages": row["task"]["prompt"]}]
    uncalled = {place for place, opening in enumerate(openings) if opening["caller"] is None}
    memory = _Memory(turns)
    talks = []
    for place, opening in enumerate(openings):
        own = [number for number, turn in enumerate(turns) if turn["conversation"] == place]
        said = []
        for before, number in zip([None, *own], own, strict=False):
            parent = turns[number]["parent"]
            said.append(
                Said(
                    turn=turns[number],
                    branch_of=own.index(parent) + 1 if parent in own and parent != before else None,
                    forgot_context=memory.forgot(number, _read(turns[number], "context")),
                    forgot_reply=memory.forgot(number, _read(turns[number], "completion")),
                )
            )
        talks.append(
            Talk(
                name=opening["name"],
                role=role,
                caller=opening["caller"],
                depth=_count_callers(opening["name"], callers),
                opening=" ".join(read_message(message).strip() for message in opening["messages"]),
                said=tuple(said),
                memory=memory.carried(own[-1], uncalled) if own else "",
            )
        )
    return talks


def read_message(message: Row) -> str:
    """The text of a message, which names its pictures."""
    return "".join(describe_part(part_from_json(part)) for part in message["content"])


def _count_callers(name: str, callers: Mapping[str, str | None]) -> int:
    """Number of conversations above one; a caller that is not recorded counts, with none above it."""
    seen = {name}
    while (caller := callers.get(name)) is not None and caller not in seen:
        seen.add(caller)
        name = caller
    return len(seen) - 1


class _Memory:
    """Knows which of a role's turns its later contexts contain. Texts are compared by their words, without tags."""

    def __init__(self, turns: Sequence[Row]) -> None:
        self._turns = turns
        self._ancestors: list[set[int]] = []
        self._contexts: list[str] = []
        """The context of each reply."""
        for turn in turns:
            parent = turn["parent"]
            above = set() if parent is None else self._ancestors[parent] | {parent}
            self._ancestors.append(above)
            texts = [_read(turns[number], kind) for number in sorted(above) for kind in ("context", "completion")]
            self._contexts.append(f" {_to_words(' '.join([*texts, _read(turn, 'context')]))} ")

    def forgot(self, number: int, text: str) -> bool:
        """Whether there are later turns, but none of their contexts contains this text of turn `number`."""
        later = range(number + 1, len(self._turns))
        pieces = _split(text)
        return bool(later and pieces) and not any(
            number in self._ancestors[other] or any(f" {piece} " in self._contexts[other] for piece, _ in pieces)
            for other in later
        )

    def carried(self, number: int, places: set[int]) -> str:
        """The part of a reply that occurs in the opening context of a later conversation of the role, among those in
        `places`."""
        openings = [
            self._contexts[other]
            for other in range(number + 1, len(self._turns))
            if self._turns[other]["parent"] is None and self._turns[other]["conversation"] in places
        ]
        pieces = _split(_read(self._turns[number], "completion"))
        return " ".join(text for words, text in pieces if any(f" {words} " in opening for opening in openings))


def _read(turn: Row, kind: str) -> str:
    return str(turn.get(f"{kind}_text") or "")


def _split(text: str) -> list[tuple[str, str]]:
    """The parts of a text between tags that contain words: the words, and the part as written."""
    parts = re.split(r"</?[A-Za-z_]+>|<\|[^|>]*\|>", text)
    return [(words, part.strip()) for part in parts if (words := _to_words(part))]


def _to_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
