"""Faults planted in attempts at repairs."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from planted_faults.script import Planted, write_nonsense
from turnwise.core.types import Message
from turnwise_worlds.repair.environment import read_modules
from turnwise_worlds.repair.family import Repair
from turnwise_worlds.repair.policies import command_message
from turnwise_worlds.repair.programs import LABELS

ARGUMENTS = {"prompt": "short", "min_functions": 5}
"""The programs of the recipe repair/tiny."""


class RepairFaults:
    """Plants every fault of the family in its tasks."""

    def __init__(self, **changes: object) -> None:
        self.family = Repair(**ARGUMENTS, **changes)
        self._off = Repair(**ARGUMENTS, tests="off", **changes)
        self._two = Repair(**ARGUMENTS, bugs=2, **changes)

    def plant(self, index: int) -> Iterator[Planted]:
        """Yield an attempt for every fault that can be planted in the task at `index` of the held-out split."""
        task, random = self.family.task("heldout", index), Random(index)
        bug = task.payload["bug"]
        functions = {function.name: function for each in read_modules(task).values() for function in each}
        name, line, right = bug["function"], bug["line"], bug["code"]
        lines = functions[name].lines
        buggy = " ".join(lines[line].code)
        other = random.choice([each for each in functions if each != name])
        at = random.randrange(len(functions[other].lines))
        elsewhere = [f"view {other} {LABELS[at]}", f"set {' '.join(functions[other].lines[at].code)}"]
        beside = random.choice([each for each in range(len(lines)) if each != line])
        near = [f"view {name} {LABELS[beside]}", f"set {' '.join(lines[beside].code)}"]
        there, test_name = f"view {name} {LABELS[line]}", f"t{list(task.payload['examples']).index(name) + 1}"
        given: dict[str, Any] = {"family": self.family, "task": task, "index": index}
        listing = ["ls"] if random.random() < 0.5 else []

        def script(*commands: str) -> list[Message]:
            return [command_message(command, number) for number, command in enumerate(commands)]

        def plant(
            fault: str, turn: int, *commands: str, loop: tuple[str, ...] = (), diverges: int | None = None
        ) -> Planted:
            # A listing tells nothing that a run of the tests does not.
            first = 0 if commands[:1] == ("ls",) else diverges
            replies = script(*commands)
            return Planted(name=fault, turn=turn, diverges=first, replies=replies, loop=script(*loop), **given)

        begun = len(listing)
        yield plant("never tested", begun + 1, *listing, *elsewhere, "submit", diverges=0)
        yield plant("wrong function", 2, "test", *elsewhere, "submit", diverges=1)
        # A line above the bug is one that the oracle views too.
        yield plant("wrong line", 2, "test", *near, "submit", diverges=2 if beside < line else 1)
        yield plant("wrong code", 2, "test", there, f"set {buggy}", "submit")
        if random.random() < 0.5:
            yield plant("opened and not repaired", 2, "test", there, "submit")
        else:
            yield plant("opened and not repaired", 3, "test", there, *elsewhere, "submit", diverges=2)
        yield plant("took the repair back", 5, "test", there, f"set {right}", "test", *near, "submit", diverges=4)
        yield plant("repaired and not submitted", 7, "test", there, f"set {right}", loop=("ls", "test"), diverges=3)
        yield plant("test overwritten", 2, "test", f"view {test_name} A", "set a = a", "submit", diverges=1)
        yield plant("gave up", begun, *listing, "submit")
        views = [f"view {each} {label}" for each in functions if each != name for label in "AB"]
        yield plant("limit", 7, "test", *random.sample(views, 7), diverges=1)
        yield plant("repeated itself", begun + 1, *listing, loop=("test",))
        yield Planted(name="format", turn=begun, replies=script(*listing), loop=[write_nonsense()], **given)
        yield Planted(
            name="tool failure",
            turn=0,
            replies=script("test", *elsewhere, "submit"),
            **{**given, "family": self._off},
        )
        yield self._break(index, random)

    def _break(self, index: int, random: Random) -> Planted:
        """Repair both bugs of a program with two, and break another line."""
        task = self._two.task("heldout", index)
        bugs = [task.payload["bug"], *task.payload["other_bugs"]]
        repairs = [
            command
            for bug in bugs
            for command in (f"view {bug['function']} {LABELS[bug['line']]}", f"set {bug['code']}")
        ]
        broken = {bug["function"] for bug in bugs}
        functions = [f for each in read_modules(task).values() for f in each if f.name not in broken]
        victim = random.choice(functions)
        code = victim.lines[-1].code
        commands = [
            *repairs,
            f"view {victim.name} {LABELS[len(victim.lines) - 1]}",
            f"set return {code[1]} * 0",
            "submit",
        ]
        return Planted(
            name="broke another line",
            turn=5,
            family=self._two,
            task=task,
            index=index,
            replies=[command_message(command, number) for number, command in enumerate(commands)],
        )
