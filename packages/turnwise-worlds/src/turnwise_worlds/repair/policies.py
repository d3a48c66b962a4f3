"""Policies written by hand: an oracle, a random baseline and the naive demonstrator.

They work from the text that a model would see.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.types import Message, Task, ToolCall
from turnwise_worlds.repair.arguments import RepairArguments
from turnwise_worlds.repair.environment import PASS
from turnwise_worlds.repair.programs import LABELS, find_callee, to_code

OPENING = ("view", "next")
"""The commands that open a line."""
PLAIN = RepairArguments(
    naive_test=0.0,
    naive_retest=0.0,
    naive_again=0.0,
    naive_retry=0.0,
    naive_eye=0.0,
    naive_same=0.0,
    naive_next=0.0,
)
"""Arguments that make the naive policy view one line, write it according to its intent, and submit."""


def command_message(command: str, number: int) -> Message:
    """Return a reply that runs a command; `number` counts the replies so far and makes call ids unique."""
    call = ToolCall(id=f"call_{number}", name="shell", arguments=json.dumps({"command": command}))
    return Message(role="assistant", content=(), tool_calls=(call,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A conversation as commands and their outputs, in order."""

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

    def last_output(self, *verbs: str) -> str:
        """Return the last output of a command with one of these verbs; "" if there is none."""
        pairs = zip(self.commands, self.outputs, strict=True)
        return next((output for command, output in reversed([*pairs]) if command.split()[0] in verbs), "")

    @property
    def blamed(self) -> str:
        """The function blamed by the last run of the tests; "" if there is none."""
        words = self.last_output("test").split()
        return words[1] if words[:1] == ["fail"] else ""

    @property
    def viewed(self) -> str:
        """The function or test viewed last; "" if none was."""
        names = [command.split()[1] for command in self.commands if command.startswith("view ")]
        return names[-1] if names else ""

    @property
    def callee(self) -> str:
        """The function that the line viewed last should call; "" if none."""
        return find_callee(self.last_output(*OPENING).partition(" | ")[0])

    @property
    def test_name(self) -> str:
        """The test that failed last; "" if none did."""
        return self.last_output("test").split()[-1] if self.blamed else ""

    def rewrite(self) -> str:
        """The command that writes the code of the line viewed last according to its intent."""
        intent, _, _ = self.last_output(*OPENING).partition(" | ")
        return f"set {' '.join(to_code(intent))}"

    @property
    def is_odd(self) -> bool:
        """Whether the code of the line viewed last differs from its intent."""
        code = self.last_output(*OPENING).partition(" | ")[2].removeprefix(". ")
        return self.rewrite() != f"set {code}"


class OraclePolicy:
    """Tests; views the lines of the blamed function, then of the functions they call, until one differs from its
    intent; rewrites that line; tests again; and submits once the tests pass or each bug has been edited."""

    def __init__(self, *, num_bugs: int) -> None:
        """`num_bugs` is the number of bugs of a program."""
        self._num_bugs = num_bugs

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next command."""
        return command_message(self._next(Reading.of(messages)), len(messages))

    def _next(self, seen: Reading) -> str:
        if "test" not in seen.commands:
            return "test"
        edits = sum(command.startswith("set ") for command in seen.commands)
        match seen.last_verb:
            case "set":
                return "test"
            case "test" if not seen.blamed or edits == self._num_bugs:
                return "submit"
            case "view" if " | " in seen.outputs[-1] and seen.is_odd:
                return seen.rewrite()
        return _view_unseen(seen)


def _view_unseen(seen: Reading) -> str:
    """View the first unseen line of the function that the tests blame, or of one that its lines call."""
    shown = dict(zip(seen.commands, seen.outputs, strict=True))
    names = [seen.blamed]
    for name in names:  # grows during the loop
        for label in LABELS:
            command = f"view {name} {label}"
            if command not in shown:
                return command
            if " | " not in shown[command]:
                break
            callee = find_callee(shown[command].partition(" | ")[0])
            names += [callee] if callee and callee not in names else []
    return "submit"


class CheatPolicy:
    """Runs the tests, writes the first line of the test that fails, and submits: it earns nothing unless the tests are
    graded as they were left."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next command."""
        seen = Reading.of(messages)
        if not seen.commands:
            return command_message("test", 0)
        views = [command for command in seen.commands if command.startswith("view ")]
        if not views and seen.test_name:
            return command_message(f"view {seen.test_name} {LABELS[0]}", len(messages))
        return command_message("set a = a" if seen.last_verb == "view" else "submit", len(messages))


class RandomPolicy:
    """Views a random line of a random function, writes it according to its intent, and submits."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next command."""
        return NaivePolicy(PLAIN).reply(task, messages, rng)


class NaivePolicy:
    """The demonstrator: shows every command and how to write a line from its intent, but never searches.

    Writing a line that is already right changes nothing.
    """

    def __init__(self, chosen: RepairArguments) -> None:
        """Uses the arguments whose names begin with `naive`."""
        self._chosen = chosen

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next command."""
        return command_message(self._next(Reading.of(messages), rng), len(messages))

    def _next(self, seen: Reading, rng: Random) -> str:
        chosen, follow = self._chosen, self._chosen.naive_follow
        if len(seen.commands) >= chosen.naive_commands:
            return "submit"
        match seen.last_verb:
            case "":
                return "test" if rng.random() < chosen.naive_test else "ls"
            case "ls":
                names = [word for word in seen.outputs[0].split() if not word.startswith("m")]
                return _view(rng.choice(names), rng)
            case "view" if seen.viewed == seen.test_name:
                return f"set {PASS}"
            case "view" | "next" if " | " not in seen.outputs[-1]:
                return _view(seen.viewed, rng)
            case "view" | "next" if seen.callee and rng.random() < follow:
                return _view(seen.callee, rng)
            case "view" | "next":
                leaves = not seen.is_odd and rng.random() < chosen.naive_eye
                return self._view_more(seen, rng) if leaves else seen.rewrite()
            case "set" if seen.commands[0] == "test" and rng.random() < chosen.naive_retest:
                return "test"
            case "set":
                return self._go_on(seen, rng, chosen.naive_again)
            case "test" if seen.blamed and len(seen.commands) == 1:
                cheats = rng.random() < chosen.naive_cheat
                return f"view {seen.test_name} {LABELS[0]}" if cheats else _view(seen.blamed, rng)
            case "test" if seen.blamed not in ("", seen.viewed) and follow and rng.random() < follow:
                return _view(seen.blamed, rng)
            case "test" if seen.blamed:
                return self._go_on(seen, rng, chosen.naive_retry)
        return "submit"

    def _go_on(self, seen: Reading, rng: Random, probability: float) -> str:
        """View any line of the function, or submit."""
        cheated = seen.viewed == seen.test_name
        return "submit" if cheated or rng.random() >= probability else self._view_more(seen, rng)

    def _view_more(self, seen: Reading, rng: Random) -> str:
        """View the last viewed line again, open the next one, or view any."""
        same, following = self._chosen.naive_same, self._chosen.naive_next
        last_view = next(command for command in reversed(seen.commands) if command.startswith("view "))
        lines = (last_view, "next", _view(seen.viewed, rng))
        return rng.choices(lines, (same, following, round(1 - same - following, 9)))[0]


def _view(name: str, rng: Random) -> str:
    """View any line, preferably one of the first; a function may have fewer lines than there are labels."""
    return f"view {name} {LABELS[min(rng.randrange(len(LABELS)), rng.randrange(len(LABELS)))]}"
