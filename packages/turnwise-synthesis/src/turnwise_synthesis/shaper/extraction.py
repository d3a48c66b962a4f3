"""A user's own passages as a graph of facts, through anything that writes: an engine, an API, a scripted extractor.

The writer reads one passage at a time and replies with lines `subject (type) | relation | object (type)`. Nothing that
it writes is trusted: a name that is not in the passage, word for word, drops the fact, and every drop has a name and a
count. What a relation says cannot be checked by words; read a sample before you train on its questions.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from turnwise.core.errors import DataError, TurnwiseError
from turnwise.environments.search_qa.corpus import Passage, read_fact
from turnwise.environments.search_qa.retrieval import tokenize
from turnwise.environments.search_qa.world import RELATIONS
from turnwise_synthesis.shaper.graph import DESCRIPTIONS, UNTYPED, FactGraph, Statement

Write = Callable[[str], Coroutine[Any, Any, str]]
"""Returns the reply to a prompt; raises a TurnwiseError if there is none."""
PROMPT = """Write down the facts that this passage states, one a line, as

subject (type) | relation | object (type)

Subject and object are names or years exactly as they are in the passage, never a pronoun. A relation is a noun such as
author or birthplace; a type is one word such as person, place, work or year. Write no other line; write NONE if the
passage states no such fact.

Title: {title}
Passage: {text}"""
NONE = "NONE"
MAX_WINDOW = 6_000
"""Characters of a passage that the writer reads at a time; a longer passage is cut between words."""
MAX_NAMED = 20
"""Most dropped facts that are named."""
MAX_WORDS = 12
"""Most words of a name."""
_PART = re.compile(r"(?P<name>[^()]+?)\s*(?:\(\s*(?P<type>[^()]*?)\s*\))?")
_MARKS = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+")
_PRONOUNS = frozenset(
    {
        *("he", "she", "it", "they", "we", "i", "you", "him", "them", "his", "her", "its", "their"),
        *("this", "that", "these", "those", "who", "which", "there", "here", "now", "one"),
    }
)


class Fate(StrEnum):
    """What became of a fact that was written down."""

    KEPT = "kept"
    REPEATED = "repeated"
    """Written before, of the same passage."""
    AGAIN = "stated_again"
    """Known from another passage, which now states it too."""
    MALFORMED = "malformed"
    """The line is not subject, relation and object."""
    PRONOUN = "pronoun"
    """Subject or object is a pronoun or another pointing word, and no name."""
    TOO_LONG = "too_long"
    """Subject or object has more than `MAX_WORDS` words."""
    SUBJECT_ABSENT = "subject_not_in_passage"
    OBJECT_ABSENT = "object_not_in_passage"
    SELF = "about_itself"
    """Subject and object are the same."""
    RESERVED = "reserved_relation"
    """The relation has the name of a description (`graph.DESCRIPTIONS`)."""


class Reading(StrEnum):
    """What became of a passage."""

    READ = "read"
    NO_FACTS = "no_facts"
    """The writer says that it states none."""
    NONSENSE = "nonsense"
    """No line of the reply is a fact."""
    EMPTY = "empty_passage"
    COPY = "copy_of_a_passage"
    """The same words as an earlier passage; it is not read, and states what that states."""
    FAILED = "writer_failed"
    """The writer gave no reply."""


@dataclass(frozen=True, kw_only=True)
class Extracted:
    """The graph and what became of everything."""

    graph: FactGraph
    readings: Mapping[str, int]
    """Passages by `Reading`."""
    fates: Mapping[str, int]
    """Facts by `Fate`."""
    named: Sequence[str]
    """The first dropped facts and failed passages, each with its passage."""


async def extract_graph(
    passages: Sequence[Passage], write: Write, *, max_concurrent: int = 8, timeout_s: float = 300.0
) -> Extracted:
    """Read all passages, at most `max_concurrent` at a time, each window of one within `timeout_s`, and build the
    graph.

    Raises DataError without passages, if none has words, and if no fact is kept, with the counts.
    """
    if not passages:
        raise DataError("the corpus has no passages; give it at least one")
    originals = find_originals(passages)
    read = [passage for passage in passages if originals.get(passage.id) == passage.id]
    if not read:
        raise DataError(f"none of the {len(passages)} passages has a word; give the corpus some text")
    slots = asyncio.Semaphore(max_concurrent)

    async def ask(passage: Passage) -> list[str | TurnwiseError]:
        async with slots:
            return [await _write_within(write, passage.title, window, timeout_s) for window in cut(passage.text)]

    replies = await asyncio.gather(*map(ask, read))
    book = _Book()
    for passage, answers in zip(read, replies, strict=True):
        copies = [copy for copy, original in originals.items() if original == passage.id]
        book.add(passage, answers, tuple(copies))
    book.readings[Reading.EMPTY] += len(passages) - len(originals)
    book.readings[Reading.COPY] += len(originals) - len(read)
    if not book.statements:
        raise DataError(
            f"no fact of {len(passages)} passages was kept: {describe(_count(book.readings), _count(book.fates))}"
        )
    return Extracted(
        graph=book.build(), readings=_count(book.readings), fates=_count(book.fates), named=tuple(book.named)
    )


def describe(readings: Mapping[str, int], fates: Mapping[str, int]) -> str:
    """Return the counts in one line."""
    parts = [f"{name.replace('_', ' ')} {count}" for counts in (readings, fates) for name, count in counts.items()]
    return ", ".join(parts)


def find_originals(passages: Sequence[Passage]) -> dict[str, str]:
    """Return the id of every passage with words, mapped to the first passage with the same words."""
    first: dict[tuple[str, ...], str] = {}
    return {
        passage.id: first.setdefault(tuple(tokenize(f"{passage.title} {passage.text}")), passage.id)
        for passage in passages
        if tokenize(passage.text)
    }


def cut(text: str) -> list[str]:
    """Cut a text between words into windows of at most `MAX_WINDOW` characters; a longer word is cut itself."""
    windows = []
    while len(text) > MAX_WINDOW:
        end = text.rfind(" ", 1, MAX_WINDOW) if " " in text[1:MAX_WINDOW] else MAX_WINDOW
        windows.append(text[:end])
        text = text[end:].lstrip()
    return [*windows, text] if text else windows


def read_reply(reply: str) -> list[tuple[tuple[str, str], str, tuple[str, str]] | None]:
    """Return ((subject, type), relation, (object, type)) of every line that is not blank, None for one that is no fact.

    A relation is put in lower case, with underscores between its words; a missing type is `UNTYPED`.
    """
    lines = [_MARKS.sub("", line).strip() for line in reply.splitlines()]
    return [_read_line(line) for line in lines if line and line.strip(".").upper() != NONE]


def spread(text: str) -> str:
    """Return the words of a text in lower case, each between single spaces, so that one text is in another exactly if
    its words stand there one after the other."""
    return f" {' '.join(tokenize(text))} "


async def write_facts(prompt: str) -> str:
    """The scripted extractor for passages of generated worlds: implements `Write`."""
    facts = [read_fact(line.removeprefix("Passage: ").strip()) for line in prompt.splitlines()]
    lines = [
        f"{subject} ({RELATIONS[relation][0]}) | {relation} | {target} ({RELATIONS[relation][1]})"
        for relation, subject, target in (fact for fact in facts if fact is not None)
    ]
    return "\n".join(lines) or NONE


class _Book:
    """What was kept and dropped so far."""

    def __init__(self) -> None:
        self.statements: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self.types: dict[str, Counter[str]] = {}
        self.readings: Counter[Reading] = Counter()
        self.fates: Counter[Fate] = Counter()
        self.named: list[str] = []

    def add(self, passage: Passage, answers: Sequence[str | TurnwiseError], copies: tuple[str, ...]) -> None:
        """Take the replies about the windows of one passage, whose words all of `copies` have."""
        failed = [answer for answer in answers if isinstance(answer, TurnwiseError)]
        facts = [fact for answer in answers if isinstance(answer, str) for fact in read_reply(answer)]
        for error in failed[:1]:
            self._name(f"passage {passage.id}: {error}")
        here: set[tuple[str, str, str]] = set()
        words = spread(passage.title) + spread(passage.text)
        for fact in facts:
            fate = self._judge(fact, words, here)
            self.fates[fate] += 1
            if fact is not None and fate in (Fate.KEPT, Fate.AGAIN):
                (subject, subject_type), relation, (target, object_type) = fact
                triple = relation, subject, target
                here.add(triple)
                self.statements[triple] = (*self.statements.get(triple, ()), *copies)
                for name, kind in ((subject, subject_type), (target, object_type)):
                    self.types.setdefault(name, Counter())[kind] += 1
            elif fate is not Fate.REPEATED:
                shown = " | ".join((fact[0][0], fact[1], fact[2][0])) if fact is not None else "a line"
                self._name(f"passage {passage.id}: {shown}: {fate.value.replace('_', ' ')}")
        if failed:
            self.readings[Reading.FAILED] += 1
        elif not facts:
            said = any(NONE in str(answer).upper() for answer in answers)
            self.readings[Reading.NO_FACTS if said else Reading.NONSENSE] += 1
        else:
            self.readings[Reading.READ if any(facts) else Reading.NONSENSE] += 1

    def build(self) -> FactGraph:
        """Return the graph; the type of an entity is the one it was given most often; `UNTYPED` only if there is
        none."""
        statements = tuple(
            Statement(relation=relation, subject=subject, object=target, passages=passages)
            for (relation, subject, target), passages in self.statements.items()
        )
        types = {
            name: max(counts, key=lambda kind, counts=counts: (kind != UNTYPED, counts[kind]))  # type: ignore[misc]
            for name, counts in self.types.items()
        }
        return FactGraph(types=types, statements=statements)

    def _judge(
        self,
        fact: tuple[tuple[str, str], str, tuple[str, str]] | None,
        words: str,
        here: set[tuple[str, str, str]],
    ) -> Fate:
        if fact is None:
            return Fate.MALFORMED
        (subject, _), relation, (target, _) = fact
        if {subject.lower(), target.lower()} & _PRONOUNS:
            return Fate.PRONOUN
        if max(len(subject.split()), len(target.split())) > MAX_WORDS:
            return Fate.TOO_LONG
        if spread(subject) not in words:
            return Fate.SUBJECT_ABSENT
        if spread(target) not in words:
            return Fate.OBJECT_ABSENT
        if tokenize(subject) == tokenize(target):
            return Fate.SELF
        if relation in DESCRIPTIONS:
            return Fate.RESERVED
        triple = relation, subject, target
        if triple in here:
            return Fate.REPEATED
        return Fate.AGAIN if triple in self.statements else Fate.KEPT

    def _name(self, text: str) -> None:
        if len(self.named) < MAX_NAMED:
            self.named.append(text)


async def _write_within(write: Write, title: str, window: str, timeout_s: float) -> str | TurnwiseError:
    try:
        async with asyncio.timeout(timeout_s):
            return await write(PROMPT.format(title=title, text=window))
    except TimeoutError:
        return DataError(f"no reply within {timeout_s:g} s")
    except TurnwiseError as error:
        return error


def _read_line(line: str) -> tuple[tuple[str, str], str, tuple[str, str]] | None:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != 3 or not all(parts):
        return None
    relation = "_".join(tokenize(parts[1]))
    subject, target = _read_name(parts[0]), _read_name(parts[2])
    return (subject, relation, target) if subject and relation and target else None


def _read_name(text: str) -> tuple[str, str] | None:
    found = _PART.fullmatch(text)
    if found is None or not tokenize(found["name"]):
        return None
    kind = "_".join(tokenize(found["type"] or "")) or UNTYPED
    return " ".join(found["name"].split()), kind


def _count(counts: Mapping[StrEnum, int] | Counter[Reading] | Counter[Fate]) -> dict[str, int]:
    return {name.value: count for name, count in counts.items() if count}
