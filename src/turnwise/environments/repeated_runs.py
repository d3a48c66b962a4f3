"""Runs programs in a sandbox, each only once, and reads their reports of calls."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from turnwise_sandbox.types import Execution, Limits, Program

MAX_KEPT = 2048
"""Most executions that are kept; one usually takes a few hundred bytes."""


class CodeRunner(Protocol):
    """Runs a program in isolation."""

    async def run(self, program: Program, limits: Limits) -> Execution:
        """See `Sandbox.run`."""
        ...


class RepeatedRuns:
    """Never runs a program twice: the same program with the same seed has the same output.

    The members of a group share their seed, so most of their programs have run before. Programs that hit a limit or
    were ended by a signal do run again.
    """

    def __init__(self, runner: CodeRunner) -> None:
        """`runner` runs programs that have not run before."""
        self._runner = runner
        self._executions: OrderedDict[tuple[object, ...], Execution] = OrderedDict()

    async def run(self, program: Program, limits: Limits) -> Execution:
        """See `Sandbox.run`."""
        key = (program.code, program.stdin, *sorted(program.files.items()), program.seed, limits)
        execution = self._executions.get(key)
        if execution is None:
            execution = await self._runner.run(program, limits)
            if execution.limit is None and execution.signal is None:
                self._executions[key] = execution
            if len(self._executions) > MAX_KEPT:
                self._executions.popitem(last=False)
        return execution


def read_outcomes(
    report: bytes, lengths: Mapping[str, int], read_whole: Callable[[str], Any] = int
) -> dict[int, list[Any]]:
    """Return the outcome of every call with a line `[number, [how, ...]]` in the report; a call's last line counts.

    `lengths` maps each `how` to the length of its outcome; `read_whole` reads a whole number. Other lines, which the
    program may have written itself, are ignored.
    """
    outcomes: dict[int, list[Any]] = {}
    for line in report.decode("utf-8", "replace").split("\n"):
        try:
            number, outcome = json.loads(line, parse_int=read_whole)
        except (ValueError, TypeError, RecursionError):
            continue
        if type(number) is not int or not isinstance(outcome, list) or not outcome:
            continue
        if isinstance(outcome[0], str) and lengths.get(outcome[0]) == len(outcome):
            outcomes[number] = outcome
    return outcomes
