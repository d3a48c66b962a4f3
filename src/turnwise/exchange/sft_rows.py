"""Trajectories as rows for supervised fine-tuning: messages and tools, as chat templates and TRL take them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.messages import Message, list_images
from turnwise.exchange.conversations import Conversation, find_total, text_of, tool_to_json
from turnwise.pictures.chat_parts import EMBEDDED, ToUrl, write_content


def to_sft_row(conversation: Conversation, *, as_text: bool, to_url: ToUrl = EMBEDDED) -> dict[str, Any]:
    """`{"messages", "tools", "role", "reward", "task_id", "trajectory", "stop"}`; without tools there is no "tools".

    `as_text` writes arguments and tools as JSON texts, so that all rows have one layout (Parquet); else they are
    objects, as templates expect them. `to_url` gives the addresses of pictures. Raises DataError for pictures in rows
    of one layout, and what `to_url` raises.
    """
    tools: Any = [tool_to_json(tool) for tool in conversation.opening.tools]
    if as_text and list_images(conversation.messages):
        raise DataError(
            f"trajectory {conversation.trajectory.id} has pictures, for which Parquet rows have no layout; write a "
            ".jsonl file"
        )
    row: dict[str, Any] = {
        "messages": [to_chat_message(message, as_text=as_text, to_url=to_url) for message in conversation.messages]
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


def to_chat_message(message: Message, *, as_text: bool, to_url: ToUrl = EMBEDDED) -> dict[str, Any]:
    """A message in the layout of chat templates. Fields that do not apply are absent, or null with `as_text`. The
    content of one with pictures is a list of parts (`pictures.chat_parts`)."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments if as_text else _parse(call.arguments)},
        }
        for call in message.tool_calls
    ]
    row: Mapping[str, Any] = {
        "role": message.role,
        "content": write_content(message.content, to_url) if message.images else text_of(message),
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
