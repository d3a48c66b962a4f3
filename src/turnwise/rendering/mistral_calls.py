"""Tool calls in Mistral's format: `[TOOL_CALLS]search[ARGS]{...}`, or, for its older models, a list of objects.

    [TOOL_CALLS]search[ARGS]{"query": "Blue Lantern"}[TOOL_CALLS]open[ARGS]{"page": 2}
    [TOOL_CALLS][{"name": "search", "arguments": {"query": "Blue Lantern"}}]

`[ARGS]` may be missing before the brace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from turnwise.core.errors import RenderError
from turnwise.core.types import ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.call_blocks import escape_marks, read_block
from turnwise.rendering.hermes_calls import parse_tool_call
from turnwise.rendering.raw_json import is_json, read_prefix, split_items

MARK, ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
_NAMED = re.compile(r"\s*+([^\n{}\[\]\"]*+)(?:\[CALL_ID\][^\s{}\[\]\"]*+)?(\[ARGS\])?\s*+")
_WANTED = "write [TOOL_CALLS], a tool's name, [ARGS] and a JSON object of arguments"


def write_mistral(call: ToolCall) -> str:
    """Write one call. Raises RenderError for a name or arguments that the format cannot express."""
    name = call.name
    if not name or name.strip() != name or re.search(r"[\n{}\[\]\"]", name) or not is_json(call.arguments):
        raise RenderError(
            f"cannot write this call in Mistral's format: {name}({call.arguments})"[:300]
            + '; use a plain name and a JSON object of arguments, or renderer.calls="hermes"'
        )
    return f"{MARK}{name}{ARGUMENTS}{escape_marks(call.arguments.strip(), (MARK, ARGUMENTS))}"


def read_mistral(
    text: str, first_id: int, tools: Sequence[ToolSpec] = ()
) -> tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Return content, calls and errors of a reply. Total and linear."""
    content: list[str] = []
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    at = 0
    while (start := text.find(MARK, at)) >= 0:
        content.append(text[at:start])
        block = read_block(text, start + len(MARK), opening=MARK, closing=MARK, is_whole=_is_whole, ends_text=True)
        # The next mark closes this call, and opens the next one.
        at = start + len(MARK) + len(block.body)
        outcomes, rest = _read_calls(block.body, first_id + len(calls))
        calls += [outcome for outcome in outcomes if isinstance(outcome, ToolCall)]
        errors += [outcome for outcome in outcomes if isinstance(outcome, ToolCallError)]
        content.append(rest)
    content.append(text[at:])
    return "".join(content).strip(), tuple(calls), tuple(errors)


def _is_whole(body: str) -> bool:
    named = _NAMED.match(body)
    return read_prefix(body, named.end() if named else 0) is not None


def _read_calls(body: str, first_id: int) -> tuple[list[ToolCall | ToolCallError], str]:
    """Read the calls after a mark; returns them and the text behind them."""
    named = _NAMED.match(body)
    at = named.end() if named else 0
    name = named[1].strip() if named else ""
    end = read_prefix(body, at)
    rest = "" if end is None else body[end:]
    if end is None or rest.lstrip().startswith(("{", "[")):
        message = f"what stands after [TOOL_CALLS] is not valid JSON; {_WANTED}"
        return [ToolCallError(kind="bad_json", raw=body, message=message)], ""
    if name:
        return [ToolCall(id=f"call_{first_id}", name=name, arguments=body[at:end])], rest
    items = split_items(body[at:end]) if body[at] == "[" else [body[at:end]]
    if not items or body[at] not in "[{":
        message = f"no call stands after [TOOL_CALLS]; {_WANTED}"
        return [ToolCallError(kind="bad_call", raw=body, message=message)], rest
    outcomes: list[ToolCall | ToolCallError] = []
    for item in items:
        number = first_id + sum(isinstance(outcome, ToolCall) for outcome in outcomes)
        outcomes.append(parse_tool_call(item, closed=True, call_id=f"call_{number}"))
    return outcomes, rest
