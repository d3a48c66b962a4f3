"""mini-swe-agent's protocol: no tools, one fenced command per reply, a marker to submit.

A reply thinks in words and has exactly one block, ```` ```mswea_bash_command ```` (version 2, text-based models) or
```` ```bash ```` (version 1). The command runs in a new shell in the tree; its status and output are returned as a user
message in tags. A command that succeeds and whose first line of output is the marker ends the episode. Three
consecutive replies without exactly one block end it too. Text after the marker is not read: the tree has no git to make
a patch with, so the files are graded as they were left. The texts of warnings and errors are our own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Task, ToolCall, ToolCallError, text_message
from turnwise_sandbox.types import Execution, Limits
from turnwise_swe.environment.environment import SweEnvironment
from turnwise_swe.environment.output import explain
from turnwise_swe.environment.tools.pdb import Pdb
from turnwise_swe.environment.workspace import Workspace

MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
FENCES = ("mswea_bash_command", "bash")
"""Names of blocks; the second counts if there is no block with the first."""
MAX_ERRORS = 3
"""The episode ends after this many consecutive replies that do not contain exactly one command."""


def read_commands(text: str) -> list[str]:
    """Return the commands of a reply; exactly one is valid."""
    for fence in FENCES:
        found: list[str] = re.findall(rf"```{fence}\s*\n(.*?)\n```", text, re.DOTALL)
        if found:
            return [command.strip() for command in found]
    return []


def write_command(command: str, thought: str) -> str:
    """Write a reply with one command."""
    return f"{thought}\n\n```{FENCES[0]}\n{command}\n```"


def describe_output(execution: Execution, limits: Limits, max_chars: int) -> str:
    """Describe a command's result: status and output in tags, a long output as its head and tail."""
    output = execution.text()
    exception = explain(execution, limits) if execution.limit is not None or execution.exit_code is None else ""
    status = -1 if exception else execution.exit_code
    head = f"<exception>{exception}</exception>\n" if exception else ""
    head += f"<returncode>{status}</returncode>\n"
    if len(output) < max_chars:
        return f"{head}<output>\n{output}</output>"
    half = max_chars // 2
    return (
        f"{head}<warning>\nThe output is too long. Print less, with head, tail, sed or grep.\n</warning>"
        f"<output_head>\n{output[:half]}\n</output_head>\n"
        f"<elided_chars>\n{len(output) - 2 * half} characters elided\n</elided_chars>\n"
        f"<output_tail>\n{output[-half:]}\n</output_tail>"
    )


def is_submission(execution: Execution) -> bool:
    """Return whether a command submits."""
    lines = execution.text().lstrip().splitlines()
    return execution.exit_code == 0 and bool(lines) and lines[0].strip() == MARKER


def format_error(count: int) -> str:
    """Return what the model is told about a reply without exactly one command."""
    return (
        f"Format error:\n\n<error>\nExpected exactly 1 action, found {count}.\n</error>\n\n"
        f"Give one command per reply, in one block:\n\n```{FENCES[0]}\nls -la\n```"
    )


class MiniBash:
    """The one tool, which the environment calls for the model."""

    def __init__(self, workspace: Workspace, max_chars: int, submit: Callable[[], Awaitable[None]]) -> None:
        self._workspace = workspace
        self._max_chars = max_chars
        self._submit = submit

    async def bash(self, command: str) -> str:
        """Run a command.

        Args:
            command: The command.
        """
        execution = await self._workspace.run(command)
        if is_submission(execution):
            await self._submit()
        return describe_output(execution, self._workspace.limits, self._max_chars)


class MiniEnvironment(SweEnvironment):
    """A repository with a bug, in mini-swe-agent's protocol. Single use."""

    _num_errors = 0
    """Number of consecutive replies without exactly one command."""

    def _take(self, workspace: Workspace, debugger: Pdb) -> list[Callable[..., object]]:
        self._workspace, self._pdb = workspace, debugger
        return [MiniBash(workspace, self._chosen.max_observation_chars, self._submit).bash]

    async def reset(self, task: Task, seed: int) -> Opening:
        """See `Environment.reset`. No tool is offered: the prompt explains the protocol."""
        opening = await super().reset(task, seed)
        return replace(opening, tools=())

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. Reads only the reply's text."""
        commands = read_commands(message.text)
        calls: tuple[ToolCall, ...] = ()
        errors: tuple[ToolCallError, ...] = ()
        if len(commands) == 1:
            arguments = json.dumps({"command": commands[0]}, ensure_ascii=False)
            calls = (ToolCall(id=f"call_{len(self.tool_records)}", name="bash", arguments=arguments),)
        else:
            errors = (ToolCallError(kind="no_action", raw=message.text, message=format_error(len(commands))),)
        result = await super().step(replace(message, tool_calls=calls, tool_errors=errors))
        self._num_errors = 0 if calls else self._num_errors + 1
        if self._num_errors == MAX_ERRORS:
            self._stage = "over"
            return StepResult(observations=(), done=True)
        return replace(result, observations=tuple(map(_as_user, result.observations)))

    def invalid_reply(self, message: Message) -> Message:
        """See `format_error`."""
        return text_message("tool", message.tool_errors[0].message)


def _as_user(message: Message) -> Message:
    return replace(message, role="user", tool_call_id=None, name=None)
