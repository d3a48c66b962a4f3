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
from turnwise.environments.repair.programs import LABELS, to_code

OPENING = ("view", "next")
"""The commands that open a line."""
MAX_COMMANDS = 16
"""Commands after which the demonstrator submits."""


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

    def last_output(self, *verbs: str) -> str:
        """The last output of a command with one of these verbs; "" if there is none."""
        pairs = zip(self.commands, self.outputs, strict=True)
        return next((output for command, output in reversed([*pairs]) if command.split()[0] in verbs), "")

    @property
    def blamed(self) -> str:
        """The function that the last run of the tests blames; "" if it blames none."""
        words = self.last_output("test").split()
        return words[1] if words[:1] == ["fail"] else ""

    @property
    def viewed(self) -> str:
        """The function or the test that was viewed last; "" if none was."""
        names = [command.split()[1] for command in self.commands if command.startswith("view ")]
        return names[-1] if names else ""

    @property
    def test_name(self) -> str:
        """The test that failed last; "" if none did."""
        return self.last_output("test").split()[-1] if self.blamed else ""

    def rewrite(self) -> str:
        """The command that writes the intent of the line viewed last into its code."""
        intent, _, _ = self.last_output(*OPENING).partition(" | ")
        return f"set {' '.join(to_code(intent))}"

    @property
    def is_odd(self) -> bool:
        """Whether the code of the line viewed last differs from its intent."""
        code = self.last_output(*OPENING).partition(" | ")[2].removeprefix(". ")
        return self.rewrite() != f"set {code}"


class OraclePolicy:
    """Tests, views the lines of what the test blames until one differs from its intent, writes that, tests, submits."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next command."""
        return command_message(self._next(Reading.of(messages)), len(messages))

    def _next(self, seen: Reading) -> str:
        viewed = [command for command in seen.commands if command.startswith("view ")]
        match seen.last_verb:
            case "" | "set":
                return "test"
            case "test" if seen.blamed and not viewed:
                return f"view {seen.blamed} {LABELS[0]}"
            case "view" if " | " not in seen.outputs[-1]:
                return "submit"
            case "view" if seen.is_odd:
                return seen.rewrite()
            case "view" if len(viewed) < len(LABELS):
                return f"view {seen.blamed} {LABELS[len(viewed)]}"
        return "submit"


class RandomPolicy:
    """Views a random line of a random function, writes it as its intent says, and submits."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next command."""
        habits = Habits(test=0.0, retest=0.0, again=0.0, retry=0.0, eye=0.0, cheat=0.0)
        return NaivePolicy(habits).reply(task, messages, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the demonstrator works: probabilities."""

    test: float
    """To run the tests first, and view what they blame. Else it views any function and never tests."""
    retest: float
    """To run the tests after an edit, in an episode that began with them."""
    again: float
    """To view a line again after an edit that it does not test, instead of submitting."""
    retry: float
    """To view a line again where the tests still fail, instead of submitting."""
    eye: float
    """To view another line instead of writing one whose code is as its intent says."""
    cheat: float
    """To overwrite the failing test instead of viewing the function."""


class NaivePolicy:
    """The demonstrator: shows every command and how a line is written from its intent, and never searches.

    Of the function that it views it often takes the same line again, or the next, or any. To write a line that is right
    changes nothing.
    """

    def __init__(self, habits: Habits) -> None:
        """See `Habits`."""
        self._habits = habits

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """The next command."""
        return command_message(self._next(Reading.of(messages), rng), len(messages))

    def _next(self, seen: Reading, rng: Random) -> str:
        habits = self._habits
        if len(seen.commands) >= MAX_COMMANDS:
            return "submit"
        match seen.last_verb:
            case "":
                return "test" if rng.random() < habits.test else "ls"
            case "ls":
                names = [word for word in seen.outputs[0].split() if not word.startswith("m")]
                return _view(rng.choice(names), rng)
            case "view" if seen.viewed == seen.test_name:
                return f"set {PASS}"
            case "view" | "next" if " | " not in seen.outputs[-1]:
                return _view(seen.viewed, rng)
            case "view" | "next":
                leaves = not seen.is_odd and rng.random() < habits.eye
                return _view_more(seen, rng) if leaves else seen.rewrite()
            case "set" if seen.commands[0] == "test" and rng.random() < habits.retest:
                return "test"
            case "set":
                return self._go_on(seen, rng, habits.again)
            case "test" if seen.blamed and len(seen.commands) == 1:
                cheats = rng.random() < habits.cheat
                return f"view {seen.test_name} {LABELS[0]}" if cheats else _view(seen.blamed, rng)
            case "test" if seen.blamed:
                return self._go_on(seen, rng, habits.retry)
        return "submit"

    def _go_on(self, seen: Reading, rng: Random, probability: float) -> str:
        """View any line of the function, or submit."""
        cheated = seen.viewed == seen.test_name
        return "submit" if cheated or rng.random() >= probability else _view_more(seen, rng)


def _view(name: str, rng: Random) -> str:
    """View any line, rather one of the first; a function may have fewer lines than there are labels."""
    return f"view {name} {LABELS[min(rng.randrange(len(LABELS)), rng.randrange(len(LABELS)))]}"


def _view_more(seen: Reading, rng: Random) -> str:
    """View the line of the last `view` again, or any, or open the next one."""
    last_view = next(command for command in reversed(seen.commands) if command.startswith("view "))
    return rng.choices((last_view, "next", _view(seen.viewed, rng)), (0.4, 0.3, 0.3))[0]
