"""Scripted policies of generated worlds: one that researches with more or less care, and one that does anything. They
speak in episodes of both styles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.policies import search_message
from turnwise.environments.search_qa.world import RELATIONS, Fact
from turnwise_rewards.grounding.claims import read_claims
from turnwise_rewards.grounding.world.arguments import Rule
from turnwise_rewards.grounding.world.pages import Shown, list_shown
from turnwise_rewards.grounding.world.policies import choose_page
from turnwise_rewards.grounding.world.reports import name_fact, read_line, write_line
from turnwise_rewards.grounding.world.reports import write_report as join_lines
from turnwise_synthesis.research.calls import call_message
from turnwise_synthesis.research.checked import NOT
from turnwise_synthesis.research.episodes.free import NOTES, SECTIONS
from turnwise_synthesis.research.episodes.led import ANSWER, RESEARCH, SECTION
from turnwise_synthesis.research.outline import Outline, Section, read_outline

NOTHING = "nothing found"
"""The value of a note about a fact that no page states."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where an episode stands, as its present context shows it."""

    research: Fact | None = None
    """The fact to look up, if one is left."""
    has_searched: bool = False
    """Whether the context has just searched for it."""
    section: Section | None = None
    """The section to write, if none of its facts is left to look up."""
    notes: tuple[str, ...] = ()
    """Lines of the notes; where a section is to be written, those about it."""
    is_led: bool = True
    """Whether the environment leads: notes and sections are then replies without a call."""


def read_progress(task: Task, messages: Sequence[Message]) -> Progress:
    """Read where an episode of either style stands."""
    outline, opening = read_outline(task), messages[0].text
    calls = [call for message in messages for call in message.tool_calls]
    first, _, rest = opening.partition("\n")
    stage, _, about = first.partition(" ")
    # The opening of an agent that leads shows examples of lines before its notes.
    noted = rest.rpartition(NOTES)[2].splitlines()
    lines = tuple(line.strip() for line in noted if read_line_of(line) is not None)
    if stage == RESEARCH:
        fact = next(fact for fact in outline.asked if about.startswith(f"{name_fact(fact)} "))
        return Progress(research=fact, has_searched=bool(calls))
    if stage == SECTION:
        return Progress(section=next(each for each in outline.sections if each.heading == about), notes=lines)
    if stage == ANSWER:
        return Progress(notes=lines)
    return _read_free(outline, lines, opening, calls)


def _read_free(outline: Outline, lines: Sequence[str], opening: str, calls: Sequence[ToolCall]) -> Progress:
    written = [line.removeprefix("- ").strip() for line in opening.rpartition(SECTIONS)[2].splitlines()]
    notes = list(lines)
    for call in calls:
        arguments = json.loads(call.arguments)
        notes += [line.strip() for line in arguments["text"].splitlines()] if call.name == "note" else []
        written += [arguments["heading"]] if call.name == "write_section" else []
    noted = {fact for note in notes if (fact := read_line_of(note)) is not None}
    searched = [json.loads(call.arguments)["query"] for call in calls if call.name == "search"]
    for section in outline.sections:
        if section.heading in written:
            continue
        left = next((fact for fact in section.asked if fact not in noted), None)
        if left is not None:
            return Progress(
                is_led=False, research=left, has_searched=searched[-1:] == [name_fact(left)], notes=tuple(notes)
            )
        own = tuple(note for note in notes if read_line_of(note) in section.asked)
        return Progress(is_led=False, section=section, notes=own)
    return Progress(is_led=False, notes=tuple(notes))


def read_line_of(line: str) -> Fact | None:
    """Return the fact that a line of notes or of a report is about; None if it is about none."""
    claims = read_claims(line)
    said = read_line(claims[0].text) if len(claims) == 1 else None
    return None if said is None else said[0]


class CarefulPolicy:
    """Looks up each fact in turn, notes what it read, writes every section from its notes, and answers.

    With probability `care` a note cites the page that it was read from, otherwise the last page that any tool showed;
    with probability `care` it also names the page that contradicts it. Of two pages that disagree it believes the
    better one by the task's rule if it `resolves`, otherwise either. It `opens` the pages that a search names if
    searches show titles only.
    """

    def __init__(self, *, care: float, resolves: bool, opens: bool) -> None:
        self._care, self._resolves, self._opens = care, resolves, opens

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call, note, section, or the answer."""
        at, number = read_progress(task, messages), count_calls(messages)
        if at.research is not None:
            if not at.has_searched:
                return search_message(name_fact(at.research), number)
            shown = list_shown(messages)
            if self._opens and (page := _find_unread(shown, at.research)) is not None:
                return call_message("open", {"page": page}, number)
            lines = self._write_notes(task, at.research, shown, rng)
            if not lines and not at.is_led:
                lines = [write_line(at.research, NOTHING, [])]
            return write_message(at, join_lines(lines), number)
        if at.section is not None:
            text = join_lines([note for note in at.notes if not note.endswith(NOTHING)])
            return write_message(at, text or ("" if at.is_led else "Nothing was found:"), number)
        return answer_message(find_answer(read_outline(task).question, at.notes))

    def _write_notes(self, task: Task, fact: Fact, shown: Sequence[Shown], rng: Random) -> list[str]:
        about = {page.id: page.content for page in shown if page.content is not None and page.content[1] == fact}
        if not about:
            return []
        rule: Rule | None = task.payload["rule"] if self._resolves else None
        best = choose_page(about, rule, rng)
        cited = best if rng.random() < self._care else shown[-1].id
        lines = [write_line(fact, about[best][2], [cited])]
        for name, (_, _, value) in about.items():
            if value != about[best][2] and rng.random() < self._care:
                lines.append(write_line(fact, NOT + value, [name]))
        return lines


def count_calls(messages: Sequence[Message]) -> int:
    """Return the number of calls in the present context."""
    return sum(len(message.tool_calls) for message in messages)


def write_message(at: Progress, text: str, number: int) -> Message:
    """Return the reply that notes a text or, where a section is to be written, makes it that section."""
    if at.is_led:
        return answer_message(text)
    if at.section is None:
        return call_message("note", {"text": text}, number)
    return call_message("write_section", {"heading": at.section.heading, "text": text}, number)


def find_answer(fact: Fact, notes: Sequence[str]) -> str:
    """Return what the first note on a fact says that is no denial; "unknown" without one."""
    for note in notes:
        for claim in read_claims(note):
            said = read_line(claim.text)
            if said is not None and said[0] == fact and not said[1].startswith(NOT) and said[1] != NOTHING:
                return said[1]
    return UNKNOWN


def _find_unread(shown: Sequence[Shown], fact: Fact) -> str | None:
    """Return a page about the subject of a fact that a search named and that is not yet opened."""
    opened = {page.id for page in shown if page.content is not None}
    return next((page.id for page in shown if page.text == fact[1] and page.id not in opened), None)


class RandomPolicy:
    """Makes random searches, notes random values with random pages, and writes random sections."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a random call, note, section or answer."""
        at, number = read_progress(task, messages), count_calls(messages)
        outline, shown = read_outline(task), list_shown(messages)
        if at.research is not None and not at.has_searched:
            other = f"{rng.choice(list(RELATIONS))} of {at.research[1]}"
            return search_message(rng.choice([other, name_fact(at.research)]), number)
        asked = at.section.asked if at.section is not None else (at.research,) if at.research is not None else ()
        if not asked:
            return answer_message(rng.choice([subject for _, subject in outline.asked]))
        values = [page.content[2] for page in shown if page.content is not None] or [asked[0][1]]
        ids = [page.id for page in shown] or ["1"]
        lines = [write_line(fact, rng.choice(values), [rng.choice(ids)]) for fact in asked]
        return write_message(at, join_lines(lines), number)
