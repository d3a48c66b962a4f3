"""Builds the trace of a conversation that a verifiers task scores, and refuses tasks that need more than text and
tools."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.types import Message, text_message


def build_trace(row: Any, replies: Sequence[Message], observations: Mapping[str, str]) -> Any:
    """Build a `Trace` of one conversation like a harness of the package, without tokens."""
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.runtimes import SubprocessConfig
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    said: list[tuple[dict[str, Any], bool]] = [({"role": m.role, "content": m.text}, False) for m in read_prompt(row)]
    for reply in replies:
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
        said.append(({"role": "assistant", "content": reply.text, "tool_calls": calls or None}, True))
        for call in reply.tool_calls:
            if call.id in observations:
                said.append(({"role": "tool", "tool_call_id": call.id, "content": observations[call.id]}, False))
    nodes = [
        MessageNode.model_validate({"parent": at - 1 if at else None, "message": message, "sampled": sampled})
        for at, (message, sampled) in enumerate(said)
    ]
    task = TraceTask(type=type(row).__name__, data=row.data)
    return Trace(task=task, agent=AgentInfo(config=AgentConfig(runtime=SubprocessConfig())), nodes=nodes)


def read_prompt(row: Any) -> tuple[Message, ...]:
    """Return the first messages of a task. Raises ConfigError if the package's simulated user would open the
    conversation."""
    if row.data.prompt is None:
        raise ConfigError(
            f"task {row.data.idx} has no prompt: its user starts the conversation, which would need a model"
        )
    system = (text_message("system", row.data.system_prompt),) if row.data.system_prompt else ()
    return (*system, text_message("user", row.data.prompt_text))


def check_row(row: Any) -> None:
    """Raise ConfigError for a task that needs more than text and tools: a container, a runtime, a judge."""
    hooks = [*row.hooks("reward"), *row.hooks("metric")]
    needs = [
        f"{hook.__name__} needs a runtime"
        for hook in hooks
        if (parameter := inspect.signature(hook).parameters.get("runtime"))
        and parameter.default is inspect.Parameter.empty
    ]
    needs += ["it needs a container"] if row.NEEDS_CONTAINER else []
    needs += ["its judges need a model"] if row.plugged_judges() else []
    if needs:
        raise ConfigError(f"{type(row).__name__}: {'; '.join(needs)}; the adapter supports only text and tools")
