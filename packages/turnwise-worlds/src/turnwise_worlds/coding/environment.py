"""One episode: a statement by examples, a tool that runs a program on the visible examples, and a submitted program.

A reply either runs a program and gets its first failing example back, or submits one and ends the episode. The model's
text is never executed outside the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from turnwise.core.types import (
    Message,
    Reward,
    RewardPart,
    Scored,
    StopReason,
    Task,
    ToolRecord,
    text_message,
)
from turnwise.environments.repeated_runs import CodeRunner
from turnwise.environments.tool_environment import ToolEnvironment, hash_calls
from turnwise.rewards.answers import extract_answer
from turnwise_sandbox.types import Limits
from turnwise_worlds.coding.arguments import CodingArguments
from turnwise_worlds.coding.fenced import find_program
from turnwise_worlds.coding.judge import Form, Outcome, Test, run_tests
from turnwise_worlds.coding.runners import LONG

Style = Literal["words", "code"]
"""How values are written: `3 1 5`, or `[3, 1, 5]`."""
REASONS = ("not_submitted", "timeout", "overfit", "wrong")
"""Reasons why a program failed, of which the first that applies counts: none was submitted; a test did not end in time;
every visible example passes and a hidden test fails; an example fails."""

NO_TESTS = "no tests"
NO_TESTS_LEFT = "no tests left"
PASS = "pass"
INVALID_REPLY = "no program"
MAX_SHOWN = 200
"""Longest text of a value in an observation, in characters."""


class CodingEnvironment(ToolEnvironment):
    """A function by examples, and hidden tests. Single use."""

    def __init__(self, *, runner: CodeRunner, chosen: CodingArguments) -> None:
        """`runner` is shared by all episodes."""
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._runner = runner
        self._chosen = chosen
        self._style: Style = "words" if chosen.prompt == "short" else "code"
        self._limits = Limits(wall_s=chosen.wall_s, memory_bytes=chosen.memory_mib << 20, output_bytes=1 << 20)
        """Limits of one process."""
        self._task = Task(environment="coding", prompt=(text_message("user", ""),), payload={})
        self._seed = 0
        self._tested: tuple[tuple[str, bool], ...] = ()
        """Every program that was run, and whether it passed."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the statement and the tool."""
        self._task, self._seed = task, seed
        return task.prompt, (self.python,)

    async def python(self, code: str) -> str:
        """Run a program on the visible examples and see the first that fails.

        Args:
            code: The whole program.
        """
        if self._chosen.tests == "off":
            return NO_TESTS
        if len(self._tested) >= self._chosen.max_tests:
            return NO_TESTS_LEFT
        program = strip_fence(code)
        tests = read_tests(self._task, "other" if self._chosen.tests == "shuffled" else "visible")
        if not tests:  # the row has only one test, which is hidden
            return NO_TESTS
        outcomes = await self._run(program, tests)
        failed = next((number for number, outcome in enumerate(outcomes) if outcome.how != "passed"), None)
        self._tested = (*self._tested, (program, failed is None))
        return PASS if failed is None else describe(tests[failed], outcomes[failed], self._form, self._style)

    @property
    def _form(self) -> Form:
        form: Form = self._task.payload["form"]
        return form

    async def _run(self, program: str, tests: Sequence[Test]) -> list[Outcome]:
        return await run_tests(
            self._runner,
            program,
            tests,
            form=self._form,
            entry=self._task.payload["entry"],
            limits=self._limits,
            seed=self._seed,
            rules=self._task.payload.get("call_rules", ()),
        )

    def is_failure(self, record: ToolRecord) -> bool:
        """Return whether a run has a failing example."""
        return record.observation not in (PASS, NO_TESTS, NO_TESTS_LEFT)

    def invalid_reply(self, message: Message) -> Message:
        """Return a fixed text for a reply that neither runs nor submits a program, or what was wrong with its call."""
        if all(error.kind == "no_action" for error in message.tool_errors):
            return text_message("tool", INVALID_REPLY)
        return super().invalid_reply(message)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 if the submitted program passes every visible and hidden test, else 0.

        Parts: `success`, one of `REASONS` for a failure, `tests` (number of programs run), `red` (one of them failed),
        and `green` (the submitted program had passed).
        """
        program = submitted_program(replies)
        reason = "not_submitted" if program is None else await self._why_failed(program)
        values = {
            "success": float(reason is None),
            "tests": float(len(self._tested)),
            "red": float(any(not passed for _, passed in self._tested)),
            "green": float((program, True) in self._tested),
        }
        if reason is not None:
            values[reason] = 1.0
        parts = tuple(RewardPart(name=name, value=value) for name, value in values.items())
        return Scored(total=values["success"], parts=parts)

    async def _why_failed(self, program: str) -> str | None:
        """Return the first of `REASONS` that applies; None if the program passes."""
        visible, hidden = read_tests(self._task, "visible"), read_tests(self._task, "hidden")
        outcomes = await self._run(program, [*visible, *hidden])
        if all(outcome.how == "passed" for outcome in outcomes):
            return None
        if any(outcome.how == "timeout" for outcome in outcomes):
            return "timeout"
        return "overfit" if all(outcome.how == "passed" for outcome in outcomes[: len(visible)]) else "wrong"

    def state_hash(self) -> str:
        """Return 16 hexadecimal digits of the task and of all runs with their output. Equal states have equal
        hashes."""
        return hash_calls(self._task.id, self.tool_records)

    async def fork(self) -> CodingEnvironment:
        """See `ForkableEnvironment.fork`: every program starts from nothing, so the calls so far are the state."""
        return self.copy_episode()


def read_tests(task: Task, name: Literal["visible", "hidden", "other"]) -> list[Test]:
    """Return the tests of a task's payload under this name."""
    return [Test(input=given, output=wanted) for given, wanted in task.payload[name]]


def submitted_program(replies: Sequence[Message]) -> str | None:
    """The program of the last reply, in `<answer>` or else in its last fence (`find_program`); None if there is none
    or it calls a tool."""
    if not replies or replies[-1].tool_calls or replies[-1].tool_errors:
        return None
    answer = extract_answer(replies[-1].text)
    if answer is not None:
        return strip_fence(answer)
    return find_program(replies[-1].text)


def strip_fence(code: str) -> str:
    """The program in the last Markdown fence; the text itself where there is none."""
    program = find_program(code)
    return code if program is None else program


def describe(test: Test, outcome: Outcome, form: Form, style: Style) -> str:
    """Describe a failing example for the model: `7 4 2 gave 7 7 want 7 2`."""
    given = show_input(test.input, form, style)
    if outcome.how != "gave":
        return " ".join(filter(None, (given, outcome.how, outcome.what)))
    gave, want = (_cut(show_value(value, style)) for value in (outcome.what, test.output))
    return f"{given} gave {gave} want {want}"


def show_input(given: Any, form: Form, style: Style) -> str:
    """Show the arguments of a call or the text of standard input."""
    if form == "stdin":
        return _cut(given.strip() if style == "words" else repr(given))
    return _cut(show_value(given, style) if style == "words" else ", ".join(show_value(each, style) for each in given))


def show_value(value: Any, style: Style) -> str:
    """Show a JSON value in either style."""
    if isinstance(value, dict) and value.keys() == {LONG}:
        return str(value[LONG])
    if style == "code":
        return repr(value)
    return " ".join(show_value(each, style) for each in value) if isinstance(value, list) else str(value)


def _cut(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # an unpaired surrogate has no tokens
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
