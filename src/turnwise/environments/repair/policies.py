"""Policies written by hand: an oracle, a random baseline and the naive demonstrator.

They work from the text that a model would see.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.repair.environment import PASS
from turnwise.environments.repair.programs import to_code

MAX_EDITS = 3
"""Edits after which the demonstrator gives up."""


def command_message(command: str, number: int) -> Message:
    """A reply that runs a command; `number` counts the replies so far and keeps call ids apart."""
    call = ToolCall(id=f"call_{number}", name="shell", arguments=json.dumps({"command": command}))
    return Message(role="assistant", content=(), tool_calls=(call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A conversation as commands and what came back, in order."""

    commands: tuple[str, ...]
    outputs: tuple[str, ...]

    @staticmethod
    def of(messages: Sequence[Message]) -> Reading:
        """Read the commands and outputs of a conversation."""
        calls = [call for message in messages for call in message.tool_calls]
        return Reading(
            commands=tuple(json.loads(call.arguments)["command"] for call in calls),
            outputs=tuple(message.text for message in messages if message.role == "tool"),
        )

    @property
    def last_verb(self) -> str:
        """The verb of the last command; "" before the first."""
        return self.commands[-1].split()[0] if self.commands else ""

    def last_output(self, verb: str) -> str:
        """The last output of a command with that verb; "" if there is none."""
        pairs = zip(self.commands, self.outputs, strict=True)
        return next((output for command, output in reversed([*pairs]) if command.split()[0] == verb), "")

    @property
    def blamed(self) -> str:
        """The function that the last run of the tests blames; "" if it blames none."""
        words = self.last_output("test").split()
        return words[1] if words[:1] == ["fail"] else ""

    @property
    def test_name(self) -> str:
        """The test that failed last."""
        return self.last_output("test").split()[-1]

    def rewrites(self) -> list[tuple[bool, str]]:
        """For each line of the function viewed last: whether it differs from its intent, and the command that writes
        the intent."""
        head, *lines = self.last_output("view").splitlines() or [""]
        rewrites = []
        for line in lines:
            text, _, intent = line.partition(" # ")
            label, *code = [word for word in text.split() if word != "."]
            wanted = to_code(intent)
            rewrites.append((tuple(code) != wanted, f"set {head.split()[0]} {label} {' '.join(wanted)}"))
        return rewrites


class OraclePolicy:
    """Tests, views what the test blames, writes the line whose code differs from its intent, tests again, submits."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next command."""
        return command_message(self._next(Reading.of(messages)), len(messages))

    def _next(self, seen: Reading) -> str:
        if seen.last_verb in ("", "set"):
            return "test"
        if seen.last_verb == "test" and seen.blamed and "set" not in {c.split()[0] for c in seen.commands}:
            return f"view {seen.blamed}"
        odd = [command for differs, command in seen.rewrites() if differs and command not in seen.commands]
        return odd[0] if odd and seen.last_verb != "submit" and seen.last_output("test") != PASS else "submit"


class RandomPolicy:
    """Views a random function, writes a random line of it as its intent says, and submits."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next command."""
        return command_message(_edit_untested(Reading.of(messages), rng), len(messages))


def _edit_untested(seen: Reading, rng: Random, eye: float = 0.0) -> str:
    if seen.last_verb == "":
        return "ls"
    if seen.last_verb == "ls":
        return f"view {rng.choice([word for word in seen.last_output('ls').split() if not word.startswith('m')])}"
    return _rewrite(seen, rng, eye) if seen.last_verb == "view" else "submit"


def _rewrite(seen: Reading, rng: Random, eye: float) -> str:
    """Write the first line that looks odd, with probability `eye` and where there is one; else any line."""
    rewrites = seen.rewrites()
    odd = [command for differs, command in rewrites if differs]
    return odd[0] if odd and rng.random() < eye else rng.choice(rewrites)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the demonstrator works: probabilities."""

    test: float
    """To run the tests first, and view what they blame. Else it views any function and submits its edit untested."""
    retest: float
    """To run the tests after an edit, in an episode that began with them, instead of submitting."""
    retry: float
    """To edit again when they still fail, instead of submitting."""
    eye: float
    """To edit the line whose code differs from its intent, where there is one, instead of any line."""
    cheat: float
    """To overwrite the failing test instead of viewing the function."""


class NaivePolicy:
    """The demonstrator: shows every command and how a line is written from its intent, and never searches.

    Of the function that it views it rewrites the line that looks odd, or any, which changes nothing where the line is
    right.
    """

    def __init__(self, habits: Habits) -> None:
        """See `Habits`."""
        self._habits = habits

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next command."""
        return command_message(self._next(Reading.of(messages), rng), len(messages))

    def _next(self, seen: Reading, rng: Random) -> str:
        habits = self._habits
        if seen.last_verb == "":
            return "test" if rng.random() < habits.test else "ls"
        if seen.commands[0] != "test":
            return _edit_untested(seen, rng, habits.eye)
        if seen.last_verb == "view":
            return _rewrite(seen, rng, habits.eye)
        if seen.last_verb == "set":
            return "test" if rng.random() < habits.retest else "submit"
        if not seen.blamed:
            return "submit"
        if len(seen.commands) == 1:
            return f"set {seen.test_name} L1 {PASS}" if rng.random() < habits.cheat else f"view {seen.blamed}"
        edits = sum(command.startswith("set ") for command in seen.commands)
        gives_up = edits == MAX_EDITS or not seen.rewrites() or rng.random() >= habits.retry
        return "submit" if gives_up else _rewrite(seen, rng, 0.0)
