"""Policies that do no work and should get no reward."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Task, ToolCall, ToolSpec, text_message
from turnwise.environments.classes.policies import draw_arguments

SPAM_CALLS = 4
"""Number of calls to each tool in one reply of `Spam`."""


@dataclass(frozen=True, slots=True)
class Say:
    """Says one text and ends; `{prompt}` in it is replaced by the task's last message."""

    text: str

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`."""
        return text_message("assistant", self.text.replace("{prompt}", messages[-1].text))


ATTACKS: Mapping[str, ScriptedPolicy] = {
    "empty reply": Say(""),
    "empty answer": Say("<answer> </answer> \\boxed{}"),
    "prompt as answer": Say("<answer> {prompt} </answer> \\boxed{{prompt}}"),
    "claims success": Say("The task is done and the answer is correct. <answer> correct </answer> \\boxed{correct}"),
}
"""Attack policies by name. Each ends its episode with the first reply."""


@dataclass(frozen=True, slots=True)
class Spam:
    """Calls every tool several times in one reply, with random arguments, and ends."""

    tools: Sequence[ToolSpec]

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`."""
        if messages[-1].role == "tool" or not self.tools:
            return text_message("assistant", "")
        calls = []
        for number, tool in enumerate([*self.tools] * SPAM_CALLS):
            arguments = json.dumps(draw_arguments(tool.parameters, messages, rng), ensure_ascii=False)
            calls.append(ToolCall(id=f"call_{number}", name=tool.name, arguments=arguments))
        return text_message("assistant", "", tool_calls=tuple(calls))
