"""Tool calls in Llama 3's format: a bare `{"name": "search", "parameters": {...}}`, several separated by `; `.

`<|python_tag|>` may precede the first. An object elsewhere in a reply is a call if it has a name and arguments; any
other is content, since replies may contain braces and JSON of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from turnwise.core.types import ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.call_blocks import find_object_end
from turnwise.rendering.hermes_calls import ARGUMENT_KEYS, parse_tool_call
from turnwise.rendering.raw_json import split_members

TAG = "<|python_tag|>"
_START = re.compile(rf"\s*+(?:{re.escape(TAG)}\s*+)?")
_BETWEEN = re.compile(r"\s*+;?\s*+")


def write_llama(call: ToolCall) -> str:
    """Write one call. Arguments that are not a JSON object stay a string."""
    arguments = call.arguments
    try:
        split_members(arguments)
    except (ValueError, RecursionError):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "parameters": {arguments}}}'


def read_llama(
    text: str, first_id: int, tools: Sequence[ToolSpec] = ()
) -> tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Return content, calls and errors of a reply. Total, and linear: the search continues behind an object, and stops
    at one that does not end."""
    content: list[str] = []
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    opening = _START.match(text)
    at = first = opening.end() if opening else 0
    if TAG not in text[:at]:
        at = 0
    while (start := text.find("{", at)) >= 0:
        end = find_object_end(text, start)
        body = text[start:end]
        outcome = parse_tool_call(body, closed=end is not None, call_id=f"call_{first_id + len(calls)}", closing="}")
        begins = start == first
        if isinstance(outcome, ToolCall) and (begins or _has_arguments(body)):
            calls.append(outcome)
        elif isinstance(outcome, ToolCallError) and (begins or _names_call(body, outcome)):
            errors.append(outcome)
        else:
            content.append(text[at : start + len(body)])
            at = start + len(body)
            continue
        content.append(text[at:start])
        between = _BETWEEN.match(text, start + len(body))
        at = between.end() if between else start + len(body)
        first = at if begins else first
    content.append(text[at:])
    return "".join(content).strip(), tuple(calls), tuple(errors)


def _has_arguments(body: str) -> bool:
    return any(key in split_members(body) for key in ARGUMENT_KEYS)


def _names_call(body: str, problem: ToolCallError) -> bool:
    """Whether an object that is not a valid call was meant as one: it has a name and arguments, or too many of them."""
    if problem.kind != "bad_call":
        return False
    members = split_members(body)
    return "name" in members and any(key in members for key in ARGUMENT_KEYS)
