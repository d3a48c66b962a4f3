"""Runs a program's functions on examples in the sandbox and compares the results outside.

The sandbox gets the modules and the arguments, never the wanted values, so no code there knows what to forge: a passing
report contains the right values for arguments that the agent has not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.environments.repeated_runs import CodeRunner, read_outcomes
from turnwise_sandbox.types import Limits, Program
from turnwise_worlds.repair.problems import Example
from turnwise_worlds.repair.programs import LABELS, Function, Modules, to_source

RUNNER = """
import json, sys, traceback
sys.path.insert(0, "")
sys.dont_write_bytecode = True
for number, (module, function, arguments) in enumerate(json.load(sys.stdin)):
    try:
        value = getattr(__import__(module), function)(*arguments)
        outcome = ["gave", value if type(value) is int else type(value).__name__]
    except BaseException as error:
        frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                  if frame.filename.endswith(module + ".py")]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1] if frames else None
        outcome = ["raised", type(error).__name__, line]
    print(json.dumps([number, outcome]), flush=True)
"""
"""Reports one line per call, so that an early end of the process leaves the remaining calls without an outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first failing example of a function."""

    function: str
    arguments: tuple[int, ...]
    want: int
    how: Literal["gave", "raised", "died", "timeout"]
    """"died": the process ended, by itself or by a limit other than time, before the call returned."""
    what: str
    """The returned value or the name of the exception; "" for the other two."""
    label: str
    """The label of the line that raised, as `C`, or as `gul C` in another function; "" if no line of the module
    raised."""


async def run_examples(
    runner: CodeRunner, limits: Limits, modules: Modules, examples: Mapping[str, Sequence[Example]], *, seed: int
) -> list[Failure]:
    """Return the first failing example of every function that has one, in the order of the program, from one sandboxed
    run.

    Only functions named in `examples` are run. Raises SandboxError if the sandbox itself fails.
    """
    calls = [
        (module, function, example)
        for module, functions in modules.items()
        for function in functions
        for example in examples.get(function.name, ())
    ]
    if not calls:
        return []
    request = [[module, function.name, list(arguments)] for module, function, (arguments, _) in calls]
    program = Program(
        code=RUNNER,
        stdin=json.dumps(request).encode(),
        files={f"{module}.py": to_source(functions).encode() for module, functions in modules.items()},
        seed=seed,
        profile="std",
    )
    execution = await runner.run(program, limits)
    outcomes = read_outcomes(execution.stdout, {"gave": 2, "raised": 3})
    failures: dict[str, Failure] = {}
    for number, (module, function, (arguments, want)) in enumerate(calls):
        outcome = outcomes.get(number) or ["timeout" if execution.limit in ("wall", "cpu") else "died"]
        if outcome[0] == "gave" and type(outcome[1]) is int and outcome[1] == want:
            continue
        line = _find_label(modules[module], function, outcome[2]) if outcome[0] == "raised" else ""
        failure = Failure(
            function=function.name,
            arguments=arguments,
            want=want,
            how=outcome[0],
            what=str(outcome[1])[:24] if len(outcome) > 1 else "",
            label=line,
        )
        failures.setdefault(function.name, failure)
    return list(failures.values())


def _find_label(functions: Sequence[Function], wanted: Function, line: object) -> str:
    """Return the label of a module's line, counted from 1, with its function unless that is `wanted`."""
    start = 1
    for function in functions:
        index = line - start if type(line) is int else 0
        if 1 <= index <= len(function.lines):
            return LABELS[index - 1] if function.name == wanted.name else f"{function.name} {LABELS[index - 1]}"
        start += len(function.lines) + 2  # its head and the empty line after it
    return ""
