"""Replies of scripted policies with one call."""

from __future__ import annotations

import json
from collections.abc import Mapping

from turnwise.core.types import Message, ToolCall


def call_message(tool: str, arguments: Mapping[str, str], number: int) -> Message:
    """Return a reply that calls a tool; `number` counts the calls before it."""
    call = ToolCall(id=f"call_{number}", name=tool, arguments=json.dumps(dict(arguments)))
    return Message(role="assistant", content=(), tool_calls=(call,))
