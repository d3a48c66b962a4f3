r"""One episode of a problem: the prompt, the interpreter, the boxed answer, the score.

A reply thinks and either runs a program, whose output or traceback is returned, or gives the final `\boxed{}`. The
environment does not know how code is isolated or how answers are compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from turnwise.core.errors import ToolFailure
from turnwise.core.seeds import derive_seed
from turnwise.core.types import (
    Invalid,
    Message,
    Reward,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolRecord,
    text_message,
)
from turnwise.environments.math_code.arguments import MathArguments
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.guard import score_guarded
from turnwise.rewards.math_answer import compute_retool_reward, final_boxed
from turnwise_sandbox.types import Execution, Limits, Program

NO_INTERPRETER = "there is no interpreter\n"
NO_CALLS_LEFT = "no more code can be run; the answer is due\n"
NO_OUTPUT = "no output; print the result\n"
INVALID_REPLY = (
    "My last reply was not valid. To run a program, I put it between <code> and </code>; to answer, I write "
    "\\boxed{answer}. I try again.\n"
)

_EXPRESSION = re.compile(r"[0-9+\-*/%(). ]{1,200}")
_FENCE = re.compile(r"\A\s*```[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)


class CodeRunner(Protocol):
    """Runs a program in isolation."""

    async def run(self, program: Program, limits: Limits) -> Execution:
        """See `Sandbox.run`."""
        ...


class MathEnvironment(ToolEnvironment):
    """A problem, an interpreter, an answer. Single use."""

    scores_from_records = True
    """The score follows from task and replies, so an audit can recompute it from the store."""

    def __init__(self, *, runner: CodeRunner, judge: Callable[[str], bool], chosen: MathArguments) -> None:
        """`judge` says whether an answer to the task is right; it may block. It raises RewardError if it cannot
        decide."""
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self._runner = runner
        self._judge = judge
        self._chosen = chosen
        self._limits = Limits(
            wall_s=chosen.wall_s, memory_bytes=chosen.memory_mib << 20, output_bytes=chosen.output_bytes
        )
        self._seed = 0
        self._failed = False

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the prompt, the interpreter, and the calculator if there is one."""
        self._seed = seed
        return task.prompt, (self.calculator, self.python) if self._chosen.calculator else (self.python,)

    async def calculator(self, expression: str) -> str:
        """Compute an expression.

        Args:
            expression: Numbers, + - * / // % and parentheses.
        """
        if not _EXPRESSION.fullmatch(expression):
            raise ToolFailure("the calculator takes up to 200 characters: numbers, + - * / // % and parentheses")
        return await self._run(f"print({expression})")

    async def python(self, code: str) -> str:
        """Run a Python program and see what it prints.

        Args:
            code: The program. It starts from nothing each time; print what you want to see.
        """
        return await self._run(strip_fence(code))

    async def _run(self, code: str) -> str:
        if not self._chosen.code:
            return NO_INTERPRETER
        number = len(self.tool_records)
        if number >= self._chosen.max_calls:
            return NO_CALLS_LEFT
        program = Program(code=code, seed=derive_seed(self._seed, "program", number))
        execution = await self._runner.run(program, self._limits)
        self._failed = not execution.ok
        return describe_execution(execution, self._chosen.traceback_lines)

    async def _call(self, call: ToolCall) -> ToolRecord:
        """Record a failed program as a call with an error, reported to the model in the interpreter's own words."""
        self._failed = False
        record = await super()._call(call)
        return replace(record, error=record.observation) if self._failed else record

    def invalid_reply(self, message: Message) -> Message:
        """Return a fixed text for a reply that neither runs code nor answers, or what was wrong with its call."""
        if all(error.kind == "no_action" for error in message.tool_errors):
            return text_message("tool", INVALID_REPLY)
        return super().invalid_reply(message)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for a right boxed answer in the last reply, otherwise the rule's value; with the part `success`.

        The reward is Invalid if judging fails.
        """
        answer = final_boxed(replies)
        correct: Reward = Scored(total=0.0)
        if answer is not None:
            correct = await score_guarded(lambda: float(self._judge(answer)), self._chosen.reward_timeout_s)
        if isinstance(correct, Invalid):
            return correct
        total = compute_retool_reward(
            correct=bool(correct.total), num_replies=max(1, len(replies)), rule=self._chosen.reward
        )
        return Scored.of(total, {"success": correct.total})

    async def fork(self) -> MathEnvironment:
        """See `ForkableEnvironment.fork`: every program starts from nothing, so the calls so far are the state."""
        return self.copy_episode()


def strip_fence(code: str) -> str:
    """Return the program inside a Markdown fence if the whole text is one, otherwise the text itself."""
    match = _FENCE.match(code)
    return match[1] if match else code


def describe_execution(execution: Execution, traceback_lines: int) -> str:
    """Describe for the model an execution's output and why it stopped (a limit, or the end of the traceback)."""
    output = execution.stdout.decode("utf-8", "replace")
    if execution.stdout_dropped:
        output += f"\n[{execution.stdout_dropped} bytes of output dropped]\n"
    if execution.ok:
        return output if output.strip() else NO_OUTPUT
    if output and not output.endswith("\n"):
        output += "\n"
    if execution.limit is not None:
        return f"{output}LimitError: the program hit its {execution.limit} limit\n"
    lines = execution.stderr.decode("utf-8", "replace").strip().splitlines()
    how = f"signal {execution.signal}" if execution.signal is not None else f"status {execution.exit_code}"
    return output + "\n".join(lines[-traceback_lines:] or [f"the program ended with {how}"]) + "\n"
