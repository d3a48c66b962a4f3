"""Tool calls in the hermes/Qwen format, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: a total parser.

Works on text alone, and keeps the arguments of a call as the model wrote them. The environment checks names and
arguments.
"""

from __future__ import annotations

import json

from turnwise.core.types import ToolCall, ToolCallError
from turnwise.rendering.call_blocks import read_block
from turnwise.rendering.raw_json import DECODER, split_members

OPENING, CLOSING = "<tool_call>", "</tool_call>"

ARGUMENT_KEYS = ("arguments", "parameters")
"""Keys under which models put the arguments of a call: hermes and Qwen the first, Llama 3 the second."""
_BESIDE = frozenset({"name", "id", "type", "index", *ARGUMENT_KEYS})
"""Keys that a call may contain without part of its arguments being lost."""


def parse_tool_calls(text: str, *, first_id: int = 0) -> tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Parse a reply to `(content, calls, errors)`; content is the text outside the calls. Any string gives a result.

    Ids are `call_<first_id>`, `call_<first_id + 1>`, ... so that a caller can keep them unique in a trajectory.
    """
    content: list[str] = []
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    at = 0
    while (start := text.find(OPENING, at)) >= 0:
        content.append(text[at:start])
        block = read_block(text, start + len(OPENING), opening=OPENING, closing=CLOSING)
        at = block.end
        outcome = parse_tool_call(block.body, closed=block.closed, call_id=f"call_{first_id + len(calls)}")
        if isinstance(outcome, ToolCall):
            calls.append(outcome)
        else:
            errors.append(outcome)
    content.append(text[at:])
    return "".join(content).strip(), tuple(calls), tuple(errors)


def parse_tool_call(raw: str, *, closed: bool, call_id: str, closing: str = CLOSING) -> ToolCall | ToolCallError:
    """Parse the text between `<tool_call>` and `closing`; `closed` says that the latter is present."""
    if not closed:
        return ToolCallError(kind="unclosed", raw=raw, message=f"a tool call was not closed with {closing}")
    try:
        value = DECODER.decode(raw)
        members = split_members(raw) if isinstance(value, dict) else {}
    except (ValueError, RecursionError) as cause:
        return ToolCallError(kind="bad_json", raw=raw, message=f"a tool call is not valid JSON: {str(cause)[:100]}")
    problem = find_problem(value)
    if problem:
        return ToolCallError(kind="bad_call", raw=raw, message=problem)
    arguments, written = next(((value[key], members[key]) for key in ARGUMENT_KEYS if key in value), ({}, "{}"))
    return ToolCall(id=call_id, name=value["name"], arguments=arguments if isinstance(arguments, str) else written)


def find_problem(value: object) -> str:
    """Return why a JSON value is not a call with all of its arguments; empty if it is one.

    Arguments in an unknown place are never dropped, because the tool would run with its defaults.
    """
    wanted = 'a tool call must be an object with "name" and "arguments"'
    if not isinstance(value, dict):
        return wanted
    others = [key for key in value if key not in _BESIDE]
    if not isinstance(value.get("name"), str) or not value["name"]:
        return f"{wanted}, not with {_quote(others)}" if others and "name" not in value else wanted
    held = [key for key in ARGUMENT_KEYS if key in value]
    if len(held) > 1:
        return f'the call of {_quote([value["name"]])} has both "arguments" and "parameters"; write "arguments" only'
    if others and not (held and value[held[0]]):
        return (
            f"the call of {_quote([value['name']])} has {_quote(others)} beside its name; "
            'write its arguments as an object under "arguments"'
        )
    return ""


def _quote(keys: list[str]) -> str:
    return ", ".join(json.dumps(key[:50], ensure_ascii=False) for key in keys[:5])


def format_tool_call(call: ToolCall) -> str:
    """Write a call in the form that `parse_tool_calls` reads. Arguments that are not a JSON object stay a string."""
    return f"{OPENING}\n{format_call_object(call)}\n{CLOSING}"


def format_call_object(call: ToolCall) -> str:
    """Write the JSON object of a call, its arguments as spelled; arguments that are not a JSON object stay a string."""
    arguments = call.arguments
    try:
        split_members(arguments)
    except (ValueError, RecursionError):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {arguments}}}'
