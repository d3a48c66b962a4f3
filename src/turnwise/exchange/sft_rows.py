"""Trajectories as rows for supervised fine-tuning: messages and tools, as chat templates and TRL take them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.core.messages import Message
from turnwise.exchange.conversations import Conversation, find_total, text_of, tool_to_json
from turnwise.pictures.chat_parts import EMBEDDED, ToUrl, write_content


def to_sft_row(
    conversation: Conversation, *, as_text: bool, as_parts: bool = False, to_url: ToUrl = EMBEDDED
) -> dict[str, Any]:
    """`{"messages", "tools", "role", "reward", "task_id", "trajectory", "stop"}`; without tools there is no "tools".

    `as_text` writes arguments and tools as JSON texts, so that all rows have one layout (Parquet); else they are
    objects, as templates expect them. `as_parts` writes every content as a list of parts: readers of whole files take
    no column that has texts in one row and lists in another, so a file in which any message has a picture needs it.
    `to_url` gives the addresses of pictures. Raises what `to_url` raises.
    """
    tools: Any = [tool_to_json(tool) for tool in conversation.opening.tools]
    row: dict[str, Any] = {
        "messages": [
            to_chat_message(message, as_text=as_text, as_parts=as_parts, to_url=to_url)
            for message in conversation.messages
        ]
    }
    if tools:
        row["tools"] = json.dumps(tools) if as_text else tools
    return row | {
        "role": conversation.trajectory.id.role,
        "reward": find_total(conversation.trajectory),
        "task_id": conversation.group.task.id,
        "trajectory": f"{conversation.trajectory.id}#{conversation.index}",
        "stop": conversation.trajectory.stop.value,
    }


def to_chat_message(
    message: Message, *, as_text: bool, as_parts: bool = False, to_url: ToUrl = EMBEDDED
) -> dict[str, Any]:
    """A message in the layout of chat templates. Fields that do not apply are absent, or null with `as_text`. The
    content of one with pictures, and of any with `as_parts`, is a list of parts (`pictures.chat_parts`)."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments if as_text else _parse(call.arguments)},
        }
        for call in message.tool_calls
    ]
    content: Any = write_content(message.content, to_url) if message.images else text_of(message)
    if as_parts and isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if as_text and not isinstance(content, str):
        content = [{"type": None, "text": None, "image_url": None, **part} for part in content]
    row: Mapping[str, Any] = {
        "role": message.role,
        "content": content,
        "reasoning_content": message.reasoning,
        "tool_calls": calls or None,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
    }
    return {key: value for key, value in row.items() if as_text or value is not None}


def _parse(arguments: str) -> Any:
    """The object that the model wrote, or its text if that is not a JSON object."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
