"""Policies written by hand: an oracle that knows the gold patch, a naive demonstrator, a random baseline.

Only `RetryingPolicy` reads the answers: for the others, the number of replies so far determines what is next.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from turnwise.core.types import Message, Task, ToolCall, text_message
from turnwise_swe.environment.arguments import Protocol, ToolName
from turnwise_swe.environment.mini import MARKER, write_command
from turnwise_swe.environment.places import CONTEXT, Change, read_changes
from turnwise_swe.environment.tools.test import ALL_PASS

Call = tuple[ToolName, Mapping[str, Any]]
MAX_EDITS = 3
"""Most edits of a demonstrator that tries again."""
SHOWN_TESTS = 3
"""Number of failing tests that a policy runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Writes a policy's calls with the available tools."""

    protocol: Protocol
    tools: tuple[ToolName, ...]
    view_lines: int

    def say(self, call: Call, number: int) -> Message:
        """Return a reply with one call; `number` makes ids unique."""
        name, arguments = call
        if self.protocol == "mini":
            return text_message("assistant", write_command(str(arguments["command"]), "The next step."))
        content = json.dumps(dict(arguments), ensure_ascii=False)
        return Message(
            role="assistant", content=(), tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=content),)
        )

    def has(self, name: ToolName) -> bool:
        """Return whether a tool is offered."""
        return self.protocol == "tools" and name in self.tools

    def view(self, change: Change, before: int) -> Call:
        """View the lines of a change, with `before` lines above, and as many as fit."""
        first = max(1, change.first - before)
        if self.has("view"):
            return "view", {"path": change.path, "first": first}
        end = first + self.view_lines - 1
        return "bash", {"command": f"nl -ba {shlex.quote(change.path)} | sed -n '{first},{end}p'"}

    def change(self, change: Change) -> Call:
        """Write lines."""
        if self.has("edit_lines"):
            return "edit_lines", {
                "path": change.path,
                "first": change.first,
                "last": change.last,
                "text": change.text.removesuffix("\n"),
            }
        if self.has("edit") and change.old:
            # Without the whitespace with which both begin, which need not be copied.
            indent = change.old[: len(change.old) - len(change.old.lstrip(" \t"))]
            old, new = (text.removeprefix(indent).removesuffix("\n") for text in (change.old, change.text))
            return "edit", {"path": change.path, "old": old, "new": new}
        path, text = json.dumps(change.path), json.dumps(change.text)
        code = (
            f"lines = list(open({path}, newline=''))\n"
            f"lines[{change.first - 1}:{change.last}] = [{text}]\n"
            f"open({path}, 'w', newline='').write(''.join(lines))"
        )
        return "bash", {"command": f"python3 - <<'END'\n{code}\nEND"}

    def apply(self, patch: str) -> Call:
        """Apply a unified diff."""
        if self.has("edit_diff"):
            return "edit_diff", {"diff": patch}
        return "bash", {"command": f"patch -p1 <<'END'\n{patch}END"}

    def test(self, ids: Sequence[str]) -> Call:
        """Run tests."""
        if self.has("test"):
            return "test", {"tests": " ".join(ids)}
        return "bash", {"command": f"python3 -m pytest -q -p no:cacheprovider {shlex.join(ids)}"}

    def submit(self) -> Call:
        """End the episode."""
        return ("submit", {}) if self.protocol == "tools" else ("bash", {"command": f"echo {MARKER}"})


class OraclePolicy:
    """Views the lines that the gold patch changes, makes the change, runs failing tests, submits."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call."""
        speaker, instance, number = self._speaker, task.payload["instance"], count_replies(messages)
        changes = read_changes(instance["patch"])
        edits: list[Call] = [speaker.apply(instance["patch"])]
        if changes and (speaker.has("edit_lines") or not speaker.has("edit_diff")):
            edits = [call for change in changes for call in (speaker.view(change, CONTEXT), speaker.change(change))]
        plan = [*edits, speaker.test(instance["FAIL_TO_PASS"][:SHOWN_TESTS]), speaker.submit()]
        calls = [call for call in plan if speaker.protocol == "mini" or call[0] in speaker.tools]
        return speaker.say(calls[min(number, len(calls) - 1)], number)


class NaivePolicy:
    """The demonstrator: runs a failing test, views the right place, and edits it, but usually writes a line unchanged;
    seldom runs the test again before it submits."""

    def __init__(self, speaker: Speaker, *, right: float, test: float) -> None:
        """`right` and `test` are the probabilities of the right edit and of a test after it."""
        self._speaker = speaker
        self._right = right
        self._test = test

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call."""
        speaker, instance, number = self._speaker, task.payload["instance"], count_replies(messages)
        changes = read_changes(instance["patch"])
        test = speaker.test(instance["FAIL_TO_PASS"][:1])
        if not changes:
            return speaker.say(test if number == 0 else speaker.submit(), number)
        return speaker.say(self._choose(number, changes[0], test, messages[-1].text, rng), number)

    def _choose(self, number: int, change: Change, test: Call, answer: str, rng: Random) -> Call:
        """Return the call of reply `number`, after `answer`."""
        match number:
            case 0:
                return test
            case 1:
                return self._speaker.view(change, rng.randint(0, 2 * CONTEXT))
            case 2:
                return self._edit(change, rng)
            case 3:
                return self._check(test, rng)
            case _:
                return self._speaker.submit()

    def _edit(self, change: Change, rng: Random) -> Call:
        return self._speaker.change(change if rng.random() < self._right else rng.choice(change.lines))

    def _check(self, test: Call, rng: Random) -> Call:
        return test if rng.random() < self._test else self._speaker.submit()


class RetryingPolicy(NaivePolicy):
    """The demonstrator if the prompt shows the place: edits at once like `NaivePolicy`, and again after a failing test,
    at most `MAX_EDITS` times."""

    def _choose(self, number: int, change: Change, test: Call, answer: str, rng: Random) -> Call:
        if number % 2:
            return self._check(test, rng)
        is_over = number == 2 * MAX_EDITS or (number > 0 and answer.startswith(ALL_PASS))
        return self._speaker.submit() if is_over else self._edit(change, rng)


class RandomPolicy:
    """Knows the file with the bug: views it, removes a line near the bug, submits."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next call."""
        speaker, number = self._speaker, count_replies(messages)
        changes = read_changes(task.payload["instance"]["patch"])
        if not changes or number > 1:
            return speaker.say(speaker.submit(), number)
        change = replace(rng.choice(changes[0].lines), text="")
        return speaker.say(speaker.view(change, CONTEXT) if number == 0 else speaker.change(change), number)


def count_replies(messages: Sequence[Message]) -> int:
    """Return how many replies a conversation has."""
    return sum(message.role == "assistant" for message in messages)
