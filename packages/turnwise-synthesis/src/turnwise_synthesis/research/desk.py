"""The desk at which research is done: tools that search, read, keep notes and write sections, and the score.

Everything that counts is in the tool records: the passages that searches returned, the notes, the sections of the
report. Only the answer is a reply without a call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from turnwise.core.errors import ToolFailure
from turnwise.core.types import Message, Reward, StopReason, Task, ToolRecord
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise_rewards.grounding.passages import Passage, read_passages
from turnwise_synthesis.research.sources import Sources

READING = ("search", "open")
"""Tools whose results are passages."""
NOTHING_FOUND = "no pages found\n"
"""What a search returns that finds nothing."""


class ResearchDesk(ToolEnvironment):
    """Sources, a memory of notes, a report in sections. Single use; one conversation or several speak to it."""

    def __init__(self, sources: Sources, *, tool_timeout_s: float, max_observation_chars: int) -> None:
        super().__init__(tool_timeout_s=tool_timeout_s, max_observation_chars=max_observation_chars)
        self._sources = sources
        self.task_id = ""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt and the tools."""
        self.task_id = task.id
        self._sources.begin(task, seed)
        reading = (self.search, self.open) if self._sources.has_titles else (self.search,)
        return task.prompt, (*reading, self.note, self.write_section)

    def search(self, query: str) -> str:
        """Search the sources for words.

        Args:
            query: What to look for.
        """
        return self._sources.search(query)

    def open(self, page: str) -> str:
        """Show a page.

        Args:
            page: The number of the page, such as 17.
        """
        return self._sources.open(page)

    def note(self, text: str) -> str:
        """Keep lines in your notes. What is not noted is lost when the context restarts.

        Args:
            text: A claim per line, each with the page that says so, such as [doc 17].
        """
        if not text.strip():
            raise ToolFailure("the note is empty; write a claim with its page, such as: It is so [doc 17]")
        return "noted\n"

    def write_section(self, heading: str, text: str) -> str:
        """Write a section of the report; one of the same heading is replaced.

        Args:
            heading: Its heading.
            text: Its claims, each with the page that says so, such as [doc 17].
        """
        if not text.strip():
            raise ToolFailure(f"section {heading[:50]!r} is empty; write its claims with their pages")
        return "written\n"

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the reward of the report and of the answer, which is the last reply."""
        answer = final_answer(AnswerCase(replies=tuple(replies), golds=(), stop=stop))
        return await self._sources.score(self.tool_records, answer, self.judges)


def list_notes(records: Sequence[ToolRecord]) -> list[str]:
    """Return the lines of all notes, in order, each once."""
    texts = [text for arguments in _list_arguments(records, "note") if (text := arguments.get("text"))]
    lines = [" ".join(line.split()) for text in texts for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if line))


def list_sections(records: Sequence[ToolRecord]) -> dict[str, str]:
    """Return the sections of the report by heading, in the order of their first writing."""
    sections: dict[str, str] = {}
    for arguments in _list_arguments(records, "write_section"):
        sections[" ".join(arguments.get("heading", "").split())] = arguments.get("text", "").strip()
    return sections


def find_passages(records: Sequence[ToolRecord]) -> dict[str, Passage]:
    """Return the passages that searches returned, by id. A note of a page is no reason to call the page the agent's own
    text where a later search returns it; a query is."""
    return read_passages(list_reads(records))


def list_reads(records: Sequence[ToolRecord]) -> list[ToolRecord]:
    """Return the calls that returned passages: the others of `READING` say in words that there are none."""
    return [each for each in records if each.call.name in READING and each.observation != NOTHING_FOUND]


def describe_episode(records: Sequence[ToolRecord], *, is_right: bool) -> dict[str, float]:
    """Return the parts of a reward that do not depend on the report: `answered`, whether the answer is right; `calls`;
    `failed`, calls that were answered with an error; `no_sources`, whether no search returned a passage."""
    return {
        "answered": float(is_right),
        "calls": float(len(records)),
        "failed": float(sum(record.error is not None for record in records)),
        "no_sources": float(not find_passages(records)),
    }


def _list_arguments(records: Sequence[ToolRecord], tool: str) -> list[dict[str, str]]:
    done = [record for record in records if record.call.name == tool and record.error is None]
    return [{str(key): str(value) for key, value in json.loads(record.call.arguments).items()} for record in done]
