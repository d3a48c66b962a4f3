"""Tool calls in the hermes/Qwen format, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: a total parser.

Works on text alone, and keeps the arguments of a call as the model wrote them. The environment checks names and
arguments.
"""

from __future__ import annotations

import json
import re

from turnwise.core.types import ToolCall, ToolCallError
from turnwise.rendering.raw_json import DECODER, split_members

_CALL = re.compile(r"<tool_call>(.*?)(</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)


def parse_tool_calls(text: str, *, first_id: int = 0) -> tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Parse a reply to `(content, calls, errors)`; content is the text outside the calls. Any string gives a result.

    Ids are `call_<first_id>`, `call_<first_id + 1>`, ... so that a caller can keep them unique in a trajectory.
    """
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    for match in _CALL.finditer(text):
        outcome = parse_tool_call(match[1], closed=bool(match[2]), call_id=f"call_{first_id + len(calls)}")
        if isinstance(outcome, ToolCall):
            calls.append(outcome)
        else:
            errors.append(outcome)
    return _CALL.sub("", text).strip(), tuple(calls), tuple(errors)


def parse_tool_call(raw: str, *, closed: bool, call_id: str, closing: str = "</tool_call>") -> ToolCall | ToolCallError:
    """Parse the text between `<tool_call>` and `closing`; `closed` says that the latter is there."""
    if not closed:
        return ToolCallError(kind="unclosed", raw=raw, message=f"a tool call was not closed with {closing}")
    try:
        value = DECODER.decode(raw)
    except (ValueError, RecursionError) as cause:
        return ToolCallError(kind="bad_json", raw=raw, message=f"a tool call is not valid JSON: {str(cause)[:100]}")
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return ToolCallError(
            kind="bad_call", raw=raw, message='a tool call must be an object with "name" and "arguments"'
        )
    arguments = value.get("arguments", {})
    written = arguments if isinstance(arguments, str) else split_members(raw).get("arguments", "{}")
    return ToolCall(id=call_id, name=value["name"], arguments=written)


def format_tool_call(call: ToolCall) -> str:
    """Write a call as `parse_tool_calls` reads it. Arguments that are not a JSON object stay a string."""
    return f"<tool_call>\n{format_call_object(call)}\n</tool_call>"


def format_call_object(call: ToolCall) -> str:
    """Write the JSON object of a call, its arguments as spelled; arguments that are not a JSON object stay a string."""
    arguments = call.arguments
    try:
        split_members(arguments)
    except (ValueError, RecursionError):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {arguments}}}'
