"""One episode of a repair: a program with bugs, six commands, grading in a pristine tree.

A reply is one command. `ls` lists modules and functions, `test` runs the tests and names the first failing function,
`view bal C` opens a line of a function and shows its intent and its code, `next` opens the line below it, `set c = a +
b` writes the code of the open line (which keeps its depth and its intent), and `submit` ends the episode. The repair of
one bug is one line: each `set` starts from the original program, so that only a run of the tests shows whether the last
one was right. With several bugs an edit stays until its line is written again, so that a right line made wrong must be
restored. The agent's text is never executed outside the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from turnwise.core.errors import ToolFailure
from turnwise.core.types import (
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    ToolRecord,
    text_message,
)
from turnwise.environments.repeated_runs import CodeRunner
from turnwise.environments.tool_environment import ToolEnvironment, hash_calls
from turnwise_sandbox.types import Limits
from turnwise_worlds.repair.arguments import RepairArguments
from turnwise_worlds.repair.edits import Edit, apply_edits, write_test
from turnwise_worlds.repair.problems import SHOWN_EXAMPLES, Example
from turnwise_worlds.repair.programs import LABELS, Code, Function, Line, Modules, show_line
from turnwise_worlds.repair.trial import Failure, run_examples

REASONS = ("not_submitted", "protected", "no_edit", "timeout", "tests_failed")
"""Reasons why a repair failed, of which the first that applies counts: no `submit`; a test was edited; the program is
unchanged; a call did not end in time; an example fails."""

NO_TESTS = "no tests"
PASS = "pass"
OK = "ok"
INVALID_REPLY = "no command"
USAGE = "use ls , test , view f A , next , set code , submit"
NOT_OPEN = "view first"
"""Output of `set` and `next` before any line is open."""
NO_MORE = "no more"
"""Output of `next` below the last line."""


class RepairEnvironment(ToolEnvironment):
    """A program, its tests, its bugs. Single use."""

    def __init__(self, *, runner: CodeRunner, chosen: RepairArguments) -> None:
        """`runner` is shared by all episodes."""
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._runner = runner
        self._chosen = chosen
        self._limits = Limits(wall_s=chosen.wall_s, memory_bytes=256 << 20, output_bytes=16_384)
        """Limits of one run of the tests."""
        self._task_id = ""
        self._seed = 0
        self._modules: Modules = {}
        self._examples: Mapping[str, tuple[Example, ...]] = {}
        self._opened: tuple[str, int] | None = None
        """The function or test and the line index viewed last; None before the first view."""
        self._edits: tuple[Edit, ...] = ()
        """All edits made."""
        self._trail: tuple[str, ...] = ()
        """The actions so far, in order: "edit", or "green" or "red" for a run of the tests."""
        self._submitted = False

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt and the shell."""
        self._task_id, self._seed = task.id, seed
        self._modules = read_modules(task)
        self._examples = read_examples(task)
        return task.prompt, (self.shell,)

    # ------------------------------------------------------------------------------------------- commands

    async def shell(self, command: str) -> str:
        """Run one command: ls, test, view NAME A, next, set CODE, submit.

        Args:
            command: The command.
        """
        match command.split():
            case ["ls"]:
                return self._list()
            case ["test"]:
                return await self._test()
            case ["view", name, label]:
                return self._view(name, label)
            case ["next"]:
                return self._next()
            case ["set", *words] if words:
                return self._set(tuple(words))
            case ["submit"]:
                self._submitted = self.done = True
                return OK
        raise ToolFailure(USAGE)

    def _list(self) -> str:
        modules = [
            f"{module} {' '.join(function.name for function in functions)}"
            for module, functions in self._modules.items()
        ]
        return "\n".join(modules)

    async def _test(self) -> str:
        if self._chosen.tests == "off":
            return NO_TESTS
        failures = await self._run_workdir()
        self._trail = (*self._trail, "red" if failures else "green")
        return self._describe(failures[0]) if failures else PASS

    def _view(self, name: str, label: str) -> str:
        function = self._function(name)
        if label not in tuple(LABELS[: len(function.lines)]):
            raise ToolFailure(f"no {label[:8]}")
        self._opened = name, LABELS.index(label)
        return show_line(function.lines[LABELS.index(label)])

    def _next(self) -> str:
        if self._opened is None:
            raise ToolFailure(NOT_OPEN)
        name, index = self._opened
        if index + 1 == len(self._function(name).lines):
            raise ToolFailure(NO_MORE)
        return self._view(name, LABELS[index + 1])

    def _set(self, code: Code) -> str:
        if self._opened is None:
            raise ToolFailure(NOT_OPEN)
        name, index = self._opened
        self._edits = (*self._edits, Edit(name=name, index=index, code=code))
        self._trail = (*self._trail, "edit")
        return OK

    def _function(self, name: str) -> Function:
        """Return the function or test of that name as the agent left it. Raises ToolFailure for another name."""
        tests = (write_test(number, tested) for number, tested in enumerate(self._examples, 1))
        for functions in (*self._modules.values(), tests):
            for function in functions:
                if function.name == name:
                    return self._edited(function)
        raise ToolFailure(f"no {name[:8]}")

    def is_failure(self, record: ToolRecord) -> bool:
        """Return whether the record is a run of the tests in which one fails."""
        return record.observation.startswith("fail ")

    def invalid_reply(self, message: Message) -> Message:
        """Return a fixed text for a reply without a command."""
        return text_message("tool", INVALID_REPLY)

    # ------------------------------------------------------------------------------------------- tests

    def _workdir(self) -> Modules:
        """Return the pristine program with the present edits applied."""
        return {
            module: tuple(self._edited(function) for function in functions)
            for module, functions in self._modules.items()
        }

    def _edited(self, function: Function) -> Function:
        return apply_edits(function, self._edits if self._chosen.bugs > 1 else self._edits[-1:])

    @property
    def _untested(self) -> set[str]:
        """Return the functions whose tests are overwritten."""
        tests = {tested: write_test(number, tested) for number, tested in enumerate(self._examples, 1)}
        return {tested for tested, test in tests.items() if self._edited(test) != test}

    async def _run_workdir(self) -> list[Failure]:
        """Return the failures of the tests as the agent left them."""
        untested = self._untested
        shown = {name: examples[:SHOWN_EXAMPLES] for name, examples in self._examples.items() if name not in untested}
        return await run_examples(self._runner, self._limits, self._workdir(), shown, seed=self._seed)

    def _describe(self, failure: Failure) -> str:
        """Describe a failure for the agent: `fail bal gave 12 want 7 in t2`."""
        names = list(self._examples)
        at = names.index(failure.function)
        if self._chosen.tests == "shuffled":
            at = (at + 1 + self._seed % (len(names) - 1)) % len(names)
        how = {
            "gave": f"gave {failure.what} want {failure.want}",
            "raised": f"raised {failure.what}" + (f" at {failure.label}" if failure.label else ""),
        }.get(failure.how, failure.how)
        return f"fail {names[at]} {how} in t{at + 1}"

    # ------------------------------------------------------------------------------------------- the end

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 or 0; in mode "pristine" 1 if every example of every function passes in a pristine tree with the
        edits applied.

        Parts: `success` (the pristine verdict, in either mode), `green` (the tests as the agent left them pass; in mode
        "workdir" only), one of `REASONS` for a failure, and counts of actions: `edits`, `repeats` (edits made before),
        `tests`, `tested_first` (a test ran before the first edit), `red_after_edit` (a test failed after an edit).
        """
        reason = await self._why_failed()
        total = float(reason is None)
        trail = self._trail
        first_edit = trail.index("edit") if "edit" in trail else len(trail)
        values: dict[str, float] = {
            "success": total,
            "edits": len(self._edits),
            "repeats": len(self._edits) - len(set(self._edits)),
            "tests": len(trail) - trail.count("edit"),
            "tested_first": any(event != "edit" for event in trail[:first_edit]),
            "red_after_edit": "red" in trail[first_edit:],
        }
        if self._chosen.tests_graded == "workdir":
            total = values["green"] = float(self._submitted and not await self._run_workdir())
        if reason is not None:
            values[reason] = 1.0
        return Scored.of(total, values)

    async def _why_failed(self) -> str | None:
        """Return the first of `REASONS` that applies; None for a repair."""
        if not self._submitted:
            return "not_submitted"
        if self._untested:
            return "protected"
        if self._workdir() == self._modules:
            return "no_edit"
        failures = await run_examples(self._runner, self._limits, self._workdir(), self._examples, seed=self._seed)
        if any(failure.how == "timeout" for failure in failures):
            return "timeout"
        return "tests_failed" if failures else None

    def state_hash(self) -> str:
        """Return 16 hexadecimal digits of the episode's state: the task, the files, and what was read. Equal states
        have equal hashes."""
        return hash_calls(self._task_id, self.tool_records)

    async def fork(self) -> RepairEnvironment:
        """See `ForkableEnvironment.fork`."""
        return self.copy_episode()


def read_modules(task: Task) -> Modules:
    """Return the program of a task."""
    return {
        module: tuple(
            Function(
                name=function["name"],
                parameters=tuple(function["parameters"]),
                lines=tuple(
                    Line(depth=depth, code=tuple(code.split()), intent=intent)
                    for depth, code, intent in function["lines"]
                ),
            )
            for function in functions
        )
        for module, functions in task.payload["modules"].items()
    }


def read_examples(task: Task) -> dict[str, tuple[Example, ...]]:
    """Return the examples of every function, in the order of the program."""
    return {
        name: tuple((tuple(arguments), want) for arguments, want in examples)
        for name, examples in task.payload["examples"].items()
    }
