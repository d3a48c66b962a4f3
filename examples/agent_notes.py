"""An agent written with the openai client: reads notes with a tool until it knows the code.

It is an ordinary program; that its model is being trained shows nowhere. `recipes/agents/tiny.toml` trains it.
"""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI

from turnwise.core.types import Task

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Read a note.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


async def read_notes(task: Task, base_url: str, api_key: str) -> float:
    """Play one task; the outcome is 1.0 for the right code and 0.0 for anything else."""
    messages: list[Any] = [{"role": "user", "content": message.text} for message in task.prompt]
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        for _ in range(4):
            completion = await client.chat.completions.create(model="policy", messages=messages, tools=[TOOL])
            message = completion.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                said = message.content or ""
                return float(said.split() == ["<answer>", task.payload["answer"], "</answer>"])
            for call in message.tool_calls:
                assert call.type == "function"
                query = json.loads(call.function.arguments)["query"]
                note = task.payload["notes"].get(query.strip(), "nothing")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": note})
    return 0.0
