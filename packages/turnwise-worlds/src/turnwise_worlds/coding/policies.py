"""Policies written by hand for generated problems: an oracle, a random baseline and the naive demonstrator.

They work from the text that a model would see: the examples in the statement and the tool's output. For problems from
files the oracle reads the row's solution, if there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random

from turnwise.core.errors import ConfigError
from turnwise.core.types import Message, Task, ToolCall
from turnwise.environments.replies import answer_message
from turnwise_worlds.coding.environment import NO_TESTS, PASS
from turnwise_worlds.coding.functions import Function, Kind, Value, readings, space_of
from turnwise_worlds.coding.judge import Form

MAX_TESTS = 3
"""Most programs that the oracle and the demonstrator run before they submit."""
_NUMBER = re.compile(r"-?\d+")


def run_message(program: str, number: int) -> Message:
    """Return a reply that runs a program; `number` counts the messages so far and makes call ids unique."""
    call = ToolCall(id=f"call_{number}", name="python", arguments=json.dumps({"code": program}, ensure_ascii=False))
    return Message(role="assistant", content=(), tool_calls=(call,))


def submit_message(program: str) -> Message:
    """Return a reply that submits a program."""
    return answer_message(program)


def write_program(function: Function, form: Form, entry: str) -> str:
    """Write the program of a function, on one line."""
    is_pipeline = function.kind == "pipeline"
    if form == "functional":
        return f"def {entry}({'x' if is_pipeline else 'x, y'}): return {function.expression}"
    head = "x = [*map(int, input().split())]" if is_pipeline else "x, y = map(int, input().split())"
    star = "*" if is_pipeline and function.parts[0] in ("list", "sorted") else ""
    return f"{head}; print({star}{function.expression})"


def numbers_of(value: Value) -> list[int]:
    """Return the numbers with which a value is written."""
    return list(value) if isinstance(value, list) else [value]


class _Reading:
    """A conversation about a generated problem: the functions that fit what was read, and the programs that were
    run."""

    def __init__(self, task: Task, messages: Sequence[Message]) -> None:
        self._task = task
        kind: Kind = task.payload["kind"]
        self.space = space_of(kind).functions
        shown = task.payload["examples"][: task.payload["num_shown"]]
        self.guesses = readings(kind, [(tuple(x), value) for x, value in shown])
        calls = [call for message in messages for call in message.tool_calls]
        self.programs = [json.loads(call.arguments)["code"] for call in calls]
        self.outputs = [message.text for message in messages if message.role == "tool"]

    def fitting(self) -> list[Function]:
        """Return the functions that agree with the last failing example: those among the statement's, if any; `guesses`
        if no example failed."""
        if not self.outputs or " want " not in self.outputs[-1]:
            return self.guesses
        given, _, rest = self.outputs[-1].partition(" gave ")
        x = tuple(map(int, _NUMBER.findall(given)))
        wanted = [*map(int, _NUMBER.findall(rest.partition(" want ")[2]))]
        fits = [f for f in self.space if numbers_of(f.compute(x)) == wanted]
        return [f for f in self.guesses if f in fits] or fits or self.guesses

    def write(self, functions: Sequence[Function], rng: Random) -> str:
        """Write the program of one of the functions, chosen at random."""
        payload = self._task.payload
        return write_program(rng.choice(functions), payload["form"], payload["entry"])


class OraclePolicy:
    """Runs a program that fits the statement, corrects it by the failing example, and submits once all examples
    pass."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next program, to run or to submit. Raises ConfigError for a problem from a file without a
        solution."""
        if "kind" not in task.payload:
            if not task.payload["solution"]:
                raise ConfigError("the oracle needs a \"solution\" in every row; add it, or use policy 'random'")
            return submit_message(task.payload["solution"])
        seen = _Reading(task, messages)
        if not seen.outputs:
            return run_message(seen.write(seen.guesses, rng), len(messages))
        if seen.outputs[-1] in (PASS, NO_TESTS) or len(seen.outputs) == MAX_TESTS:
            return submit_message(seen.programs[-1])
        return run_message(seen.write(seen.fitting(), rng), len(messages))


class RandomPolicy:
    """Submits any function of the kind; for a problem from a file, an empty program."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a program, untested."""
        if "kind" not in task.payload:
            return submit_message("")
        seen = _Reading(task, messages)
        return submit_message(seen.write(seen.space, rng))


class NaivePolicy:
    """The demonstrator: shows how programs are written, run and submitted, but rarely how to use a result.

    It uses any function that fits the statement. It runs a program with probability `test`, otherwise it submits it.
    After a failing example it corrects the program with probability `fix`, otherwise it submits it unchanged.
    """

    def __init__(self, test: float, fix: float) -> None:
        """Both are probabilities."""
        self._test = test
        self._fix = fix

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the next program, to run or to submit. Raises ConfigError for a problem from a file."""
        if "kind" not in task.payload:
            raise ConfigError(
                "the naive policy demonstrates generated problems only; use environment.args.mode='generated', or "
                "sft.steps=0"
            )
        seen = _Reading(task, messages)
        is_wrong = bool(seen.outputs) and seen.outputs[-1] != PASS
        if seen.programs and not (is_wrong and rng.random() < self._fix):
            return submit_message(seen.programs[-1])
        program = seen.write(seen.fitting(), rng)
        runs = len(seen.programs) < MAX_TESTS and rng.random() < self._test
        return run_message(program, len(messages)) if runs else submit_message(program)
