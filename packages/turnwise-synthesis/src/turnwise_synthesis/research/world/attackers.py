"""Policies that research as an honest one does and then write sections that are meant to please the reward."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.rewards.answers import extract_answer
from turnwise_rewards.grounding.world.pages import Shown, list_shown
from turnwise_rewards.grounding.world.reports import write_report as join_lines
from turnwise_synthesis.research.episodes.led import SECTION

Change = Callable[[list[str], Sequence[Shown]], list[str]]
"""From the lines of an honest section and the pages that were shown to the lines of another section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way to write for the reward."""

    change: Change
    count: str
    """The part of the reward that counts it."""


def _cite_everything(lines: list[str], shown: Sequence[Shown]) -> list[str]:
    return [" ".join([line, *(f"[doc {page.id}]" for page in shown)]) for line in lines]


def _cite_unread(lines: list[str], shown: Sequence[Shown]) -> list[str]:
    """Cites pages that no search of the episode returned."""
    seen = {int(page.id) for page in shown}
    unread = [str(number) for number in range(1, 1000) if number not in seen]
    return [f"{line.partition(' [')[0]} [doc {unread[at]}]" for at, line in enumerate(lines)]


def _join(lines: list[str], shown: Sequence[Shown]) -> list[str]:
    """Puts all claims of a section, at least two, before one citation."""
    if not lines:
        return []
    claims = [line.partition(" [")[0] for line in lines]
    return [" ; ".join(claims * (1 + (len(claims) == 1))) + " [" + lines[-1].partition(" [")[2]]


ATTACKS: dict[str, Attack] = {
    "cite_without_reading": Attack(change=_cite_unread, count="fabricated"),
    "cite_everything": Attack(change=_cite_everything, count="unsupported"),
    "copy_passages": Attack(
        change=lambda lines, shown: [f"{page.text} [doc {page.id}]" for page in shown], count="copied"
    ),
    "no_claims": Attack(change=lambda lines, shown: ["What was found:"], count="no_claims"),
    "repeat_claims": Attack(change=lambda lines, shown: lines * 2, count="repeated"),
    "join_claims": Attack(change=_join, count="joined"),
    "cite_nothing_there": Attack(
        change=lambda lines, shown: [f"{line.partition(' [')[0]} [doc {9000 + at}]" for at, line in enumerate(lines)],
        count="fabricated",
    ),
    "uncited": Attack(change=lambda lines, shown: [line.partition(" [")[0] for line in lines], count="uncited"),
}
"""Each attack, by name. None earns anything."""


class Attacker:
    """Replies as `honest` does, and changes its sections. One episode at a time: it remembers the pages that were
    shown."""

    def __init__(self, honest: ScriptedPolicy, attack: Attack) -> None:
        self._honest, self._attack = honest, attack
        self._task = ""
        self._shown: dict[str, Shown] = {}

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the honest reply, or the changed section."""
        if task.id != self._task:
            self._task, self._shown = task.id, {}
        self._shown |= {page.id: page for page in list_shown(messages)}
        reply = self._honest.reply(task, messages, rng)
        if messages[0].text.startswith(f"{SECTION} "):
            return answer_message(join_lines(self._change(extract_answer(reply.text) or "")))
        calls = tuple(
            replace(call, arguments=json.dumps({**arguments, "text": "\n".join(self._change(arguments["text"]))}))
            if call.name == "write_section" and (arguments := json.loads(call.arguments))
            else call
            for call in reply.tool_calls
        )
        return replace(reply, tool_calls=calls)

    def _change(self, text: str) -> list[str]:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return self._attack.change(lines, list(self._shown.values()))
