"""Policies written by hand for problems with tools: an oracle, a random baseline and the naive demonstrator.

Oracle and demonstrator take the program or expression from the problem and the answer from the tool's output. Only for
tasks with neither (reasoning-gym, files) the oracle reads the gold answer; such tasks have no demonstrator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.errors import ConfigError
from turnwise.core.types import Message, Task, ToolCall, text_message
from turnwise.environments.math_code.problems import KINDS, Problem
from turnwise.rewards.math_answer import parse_integer

_ERROR = re.compile(r"^\w*(?:Error|Exception|Interrupt|Iteration): ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a task can be solved, and a typical mistake."""

    tool: str
    """The tool for which the other fields are written: "python", or "calculator" for expressions."""
    solution: str
    """Return a program or expression that computes the answer."""
    attempt: str
    """The obvious attempt; on some problems it raises."""
    slip: str | None
    """The attempt with a mistake; None if `attempt` is itself enough of a trap."""
    error: str | None
    """The last line of the traceback of `slip`, or else of `attempt`; None if neither raises."""


def run_message(tool: str, text: str, number: int) -> Message:
    """Return a reply that runs a program or an expression; `number` counts the replies so far and makes call ids
    unique."""
    arguments = {"expression" if tool == "calculator" else "code": text}
    call = ToolCall(id=f"call_{number}", name=tool, arguments=json.dumps(arguments, ensure_ascii=False))
    return Message(role="assistant", content=(), tool_calls=(call,))


def answer_message(answer: str | int) -> Message:
    r"""Return a reply that answers `\boxed{ 7 }`, with the number between spaces as in questions and outputs."""
    return text_message("assistant", f"\\boxed{{ {answer} }}")


def plan_of(task: Task) -> Plan | None:
    """Return the plan of a generated problem or a story; None for other tasks."""
    payload = task.payload
    if "story" in payload:
        story = payload["story"]
        return Plan(attempt=story["solution"], error=None, **story)
    if "parts" not in payload:
        return None
    problem = Problem(kind=payload["kind"], parts=tuple(payload["parts"]))
    return Plan(
        tool="python",
        solution=problem.solution,
        attempt=problem.attempt,
        slip=problem.slip,
        error=KINDS[problem.kind].error,
    )


def _outputs(messages: Sequence[Message]) -> list[str]:
    return [message.text.strip() for message in messages if message.role == "tool"]


class OraclePolicy:
    """Runs the program that always works and answers with its output, or with "0" if it printed no number."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the program, or the answer."""
        plan, outputs = plan_of(task), _outputs(messages)
        if plan is None:
            return answer_message(task.payload["answers"][0])
        if not outputs:
            return run_message(plan.tool, plan.solution, 0)
        number = parse_integer(outputs[-1])
        return answer_message(0 if number is None else number)


class RandomPolicy:
    """Multiplies two random numbers every other time, then answers with a random number."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return a meaningless program, or a guess."""
        if not _outputs(messages) and rng.random() < 0.5:
            return run_message("python", f"print( {rng.randrange(10, 100)} * {rng.randrange(10, 100)} )", 0)
        return answer_message(rng.randrange(100))


class NaivePolicy:
    """The demonstrator: shows how programs are run, but rarely how to recover from an error.

    Its first program is the obvious one, containing the kind's slip with probability `bug_rate`. If the interpreter
    prints a number, it answers with that. After an error it writes the right program with probability `fix_rate`;
    otherwise it gives up and guesses.
    """

    def __init__(self, bug_rate: float, fix_rate: float) -> None:
        """Both are probabilities."""
        self._bug_rate = bug_rate
        self._fix_rate = fix_rate

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """Return the first program, the answer, a second program, or a guess.

        Raises ConfigError for a task that was not generated.
        """
        plan, outputs = plan_of(task), _outputs(messages)
        if plan is None:
            raise ConfigError(
                "the naive policy demonstrates generated problems and stories only; use "
                "environment.args.mode='generated' or 'stories', or sft.steps=0"
            )
        if not outputs:
            slips = plan.slip is not None and rng.random() < self._bug_rate
            return run_message(plan.tool, plan.slip if slips and plan.slip is not None else plan.attempt, 0)
        number = parse_integer(outputs[-1])
        if number is not None:
            return answer_message(number)
        if len(outputs) == 1 and _ERROR.search(outputs[0]) and rng.random() < self._fix_rate:
            return run_message(plan.tool, plan.solution, 1)
        return answer_message(rng.randrange(100))
