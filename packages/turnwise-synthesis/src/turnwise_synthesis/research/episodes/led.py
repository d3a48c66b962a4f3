"""Research led by the environment, for small models: one context per fact, per section and for the answer.

    fact0      research author of Blue Lantern later     search, pages     note
    fact1      research publisher of Blue Lantern later  search, pages     note
    section0   section Blue Lantern, its notes                             section
    ...
    answer     answer author of Blue Lantern, its notes                    answer

A context is gone when it ends: a section is written from the notes alone, as in WebWeaver (arXiv 2509.13312), whose
agent chooses the order itself. Notes and sections are replies without a call, which the desk is given as calls
of `note` and `write_section`.
"""

from __future__ import annotations

import json

from turnwise.core.episodes import Ask, Asked
from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Message, Task, ToolCall, ToolRecord, ToolSpec, Trajectory, text_message
from turnwise.environments.search_qa.world import Fact
from turnwise.rewards.answers import extract_answer
from turnwise_rewards.grounding.world.reports import name_fact
from turnwise_synthesis.research.desk import ResearchDesk, list_notes
from turnwise_synthesis.research.episodes.contexts import ContextsAtDesk
from turnwise_synthesis.research.outline import Outline, Section, read_outline

NO_NOTES = "none"
RESEARCH, SECTION, ANSWER = "research", "section", "answer"
"""The first word of a context."""


def open_fact(fact: Fact, rule: str) -> str:
    """Write the opening of a context that researches a fact."""
    return f"{RESEARCH} {name_fact(fact)} {rule}\n"


def open_section(heading: str, notes: list[str]) -> str:
    """Write the opening of a context that writes a section."""
    return f"{SECTION} {heading}\n {_join(notes)}\n"


def open_answer(fact: Fact, notes: list[str]) -> str:
    """Write the opening of the context that answers."""
    return f"{ANSWER} {name_fact(fact)}\n {_join(notes)}\n"


def _join(notes: list[str]) -> str:
    return "\n ".join(notes) or NO_NOTES


def to_call(name: str, reply: Message, heading: str | None) -> ToolCall:
    """Return the call that a reply without one stands for: a note, or the section of this heading."""
    said = extract_answer(reply.text) or ""
    tool, arguments = "note", {"text": said}
    if heading is not None:
        tool, arguments = "write_section", {"heading": heading, "text": said}
    return ToolCall(id=name, name=tool, arguments=json.dumps(arguments))


def list_led_records(outline: Outline, trajectory: Trajectory) -> list[ToolRecord]:
    """Return all calls of a stored episode in order, with its notes and sections as calls; the empty ones failed."""
    headings = {f"{SECTION}{at}": section.heading for at, section in enumerate(outline.sections)}
    records: list[ToolRecord] = []
    for path, opening in zip(trajectory.branches(), trajectory.conversations, strict=False):
        for turn in (trajectory.turns[at] for at in path):
            records += turn.tool_records
            if opening.name != ANSWER and not turn.message.tool_calls and not turn.message.tool_errors:
                call = to_call(opening.name, turn.message, headings.get(opening.name))
                error = None if json.loads(call.arguments)["text"].strip() else "empty"
                records.append(ToolRecord(call=call, observation=error or "", error=error, seconds=0.0))
    return records


class LedResearch(ContextsAtDesk):
    """Implements `AskingEnvironment`."""

    def __init__(self, desk: ResearchDesk, *, has_memory: bool) -> None:
        """Without `has_memory` no context shows a note."""
        super().__init__(desk)
        self._has_memory = has_memory
        self._steps: list[tuple[str, Fact | Section]] = []
        """What is still to be done, in order: the name of a context, and what it is about."""
        self._tools: tuple[ToolSpec, ...] = ()

    async def begin(self, task: Task, seed: int) -> Asked:
        """Ask for the first fact."""
        opening = await self._desk.reset(task, seed)
        self._tools = tuple(tool for tool in opening.tools if tool.name == "search")
        self._rule, outline = str(task.payload["rule"]), read_outline(task)
        number = 0
        for at, section in enumerate(outline.sections):
            for fact in section.asked:
                self._steps.append((f"fact{number}", fact))
                number += 1
            self._steps.append((f"{SECTION}{at}", section))
        self._steps.append((ANSWER, outline.question))
        return Asked(asks=(self._ask(),))

    async def tell(self, conversation: str, reply: Message) -> Asked:
        """Accept a search, a note, a section or the answer."""
        name, about = self._steps[0]
        if conversation != name:
            raise EnvironmentFault(f"LedResearch got a reply in {conversation!r}, where it had not asked for one")
        if reply.tool_calls or reply.tool_errors:
            result = await self._desk.step(reply)
            ask = Ask(conversation=name, messages=result.observations)
            return Asked(asks=(ask,), tool_records=result.tool_records)
        if name == ANSWER:
            self._answer = reply
            return Asked(asks=())
        heading = about.heading if isinstance(about, Section) else None
        call = to_call(name, reply, heading)
        # Not in the result's records: the reply has no such call.
        await self._desk.step(Message(role="assistant", content=(), tool_calls=(call,)))
        self._steps.pop(0)
        return Asked(asks=(self._ask(),))

    def _ask(self) -> Ask:
        name, about = self._steps[0]
        tools: tuple[ToolSpec, ...] = ()
        if isinstance(about, Section):
            text = open_section(about.heading, self._find_notes(about.heading))
        elif name == ANSWER:
            text = open_answer(about, self._find_notes(about[1]))
        else:
            text, tools = open_fact(about, self._rule), self._tools
        return Ask(conversation=name, messages=(text_message("user", text),), tools=tools)

    def _find_notes(self, subject: str) -> list[str]:
        """Return the notes about a subject."""
        if not self._has_memory:
            return []
        return [note for note in list_notes(self._desk.tool_records) if f"of {subject} :" in note]
