"""Scripted policies over the user's own corpus, where nobody knows the right replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.policies import search_message
from turnwise_synthesis.research.calls import call_message

MAX_QUOTED = 20
"""Most words of a quotation."""
HEADING = "Findings"


class QuotingPolicy:
    """Searches for the question, writes the first sentence of every passage with its id, and answers with one word.

    With probability `care` a quotation cites the passage that it is from, otherwise any that was shown."""

    def __init__(self, care: float) -> None:
        self._care = care

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the search, the section or the answer."""
        calls = [call.name for message in messages for call in message.tool_calls]
        if "search" not in calls:
            return search_message(task.payload["question"], len(calls))
        shown = [row for message in messages if message.role == "tool" for row in _read_rows(message.text)]
        words = [word for row in shown for word in row["text"].split()] or ["unknown"]
        if "write_section" not in calls and shown:
            ids = [row["id"] for row in shown]
            lines = [
                f"- {' '.join(row['text'].split('. ')[0].split()[:MAX_QUOTED])} "
                f"[doc {row['id'] if rng.random() < self._care else rng.choice(ids)}]"
                for row in shown
            ]
            return call_message("write_section", {"heading": HEADING, "text": "\n".join(lines)}, len(calls))
        return answer_message(rng.choice(words))


def _read_rows(text: str) -> list[dict[str, str]]:
    if not text.startswith("["):
        return []
    rows: list[dict[str, str]] = json.loads(text)
    return rows
