"""Tool calls in DeepSeek's format, between tokens of its own, in the two forms of V3 (and R1) and of V3.1:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search
    ```json
    {"query": "Blue Lantern"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    ...<｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "Blue Lantern"}<｜tool▁call▁end｜>...

One reader handles both.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.errors import RenderError
from turnwise.core.types import ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.call_blocks import escape_marks, read_block
from turnwise.rendering.raw_json import is_json

BEGIN, END, CALL, CALL_END, SEPARATOR = MARKS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
_FENCE = "```"


def write_deepseek_v3(call: ToolCall) -> str:
    """Write one call in the form of V3. Raises RenderError for a name or arguments that the format cannot express."""
    return f"{BEGIN}{CALL}function{SEPARATOR}{call.name}\n{_FENCE}json\n{_check(call)}\n{_FENCE}{CALL_END}{END}"


def write_deepseek_v31(call: ToolCall) -> str:
    """Write one call in the form of V3.1. Raises RenderError as `write_deepseek_v3`."""
    return f"{BEGIN}{CALL}{call.name}{SEPARATOR}{_check(call)}{CALL_END}{END}"


def _check(call: ToolCall) -> str:
    """Return the arguments as written. Raises RenderError."""
    name = call.name
    if not is_json(call.arguments) or not name or name.split() != [name] or any(mark in name for mark in MARKS):
        raise RenderError(
            f"cannot write this call in DeepSeek's format: {name}({call.arguments})"[:300]
            + '; use a plain name and a JSON object of arguments, or renderer.calls="hermes"'
        )
    return escape_marks(call.arguments, MARKS)


def read_deepseek(
    text: str, first_id: int, tools: Sequence[ToolSpec] = ()
) -> tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Return content, calls and errors of a reply. Total and linear."""
    content: list[str] = []
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    at = 0
    while (start := text.find(CALL, at)) >= 0:
        content.append(text[at:start])
        block = read_block(text, start + len(CALL), opening=CALL, closing=CALL_END, is_whole=_is_whole)
        at = block.end
        if not block.closed:
            message = f"a tool call was not closed with {CALL_END}"
            errors.append(ToolCallError(kind="unclosed", raw=block.body, message=message))
            continue
        name, arguments = _take_apart(block.body)
        if not name:
            message = f"a tool call must be a tool's name, {SEPARATOR} and a JSON object of arguments"
            errors.append(ToolCallError(kind="bad_call", raw=block.body, message=message))
        elif not is_json(arguments):
            message = f"the arguments of a tool call ({name[:100]}) are not valid JSON"
            errors.append(ToolCallError(kind="bad_json", raw=block.body, message=message))
        else:
            calls.append(ToolCall(id=f"call_{first_id + len(calls)}", name=name, arguments=arguments))
    content.append(text[at:])
    outside = "".join(content).replace(BEGIN, "").replace(END, "")
    return outside.strip(), tuple(calls), tuple(errors)


def _is_whole(body: str) -> bool:
    name, arguments = _take_apart(body)
    return bool(name) and is_json(arguments)


def _take_apart(body: str) -> tuple[str, str]:
    """Return name and arguments; an empty name if there is none."""
    head, separator, rest = body.partition(SEPARATOR)
    if not separator:
        return "", ""
    name, _, fenced = rest.rstrip().partition(_FENCE)  # models put a new line before the fence, or forget it
    if head.strip() == "function" and fenced.endswith(_FENCE):
        return name.strip(), fenced.removeprefix("json").removesuffix(_FENCE).strip()
    return head.strip(), rest.strip()
