"""Tool calls in the format of ReAct (2210.03629), in two lines: `Action: search`, then `Action Input: {"query": ...}`.

Labels may be bold or numbered (`**Action:**`, `Action 2:`), and the input may be in a code block. Takes time linear in
the length of a reply: it is split at its labels, and no line is searched twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from turnwise.core.errors import RenderError
from turnwise.core.types import ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.raw_json import DECODER, split_members

OBSERVATION = "\nObservation:"
"""The label at which a model would continue with an invented result."""
_WANTED = "write Action: and a tool's name, then Action Input: and a JSON object on the next line"


def _label(words: str, start: str = r"[ \t]*+\**+") -> re.Pattern[str]:
    return re.compile(rf"{start}{words}[ \t]*+\d*+[ \t]*+\**+:\**+[ \t]*+")


_ACTION, _INPUT, _RESULT = _label("Action"), _label("Action[ \t]++Input"), _label("Observation")
_INPUT_IN_LINE = _label("Action[ \t]++Input", start="")
_FENCE = re.compile(r"\s*+(`++)(?:[a-z_]++(?=\s))?\s*+")
_SPACE = re.compile(r"\s*+")


def write_react(call: ToolCall) -> str:
    """Write one call in two lines. Raises RenderError if they cannot express it."""
    arguments = call.arguments.strip()
    try:
        split_members(arguments)
    except (ValueError, RecursionError):
        arguments = ""
    if not arguments or not call.name or _read_name(call.name) != call.name or "\n" in call.name:
        raise RenderError(
            f"cannot write this call as an action: {call.name}({call.arguments})"[:300]
            + '; use a plain name and a JSON object of arguments, or renderer.calls="hermes"'
        )
    return f"Action: {call.name}\nAction Input: {arguments}"


def _read_name(written: str) -> str:
    """Return a name without the marks that models put around it."""
    return _INPUT_IN_LINE.split(written, maxsplit=1)[0].strip(" \t\r*`\"'")


def read_react(
    text: str, first_id: int, tools: Sequence[ToolSpec] = ()
) -> tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Return content, calls and errors of a reply, up to a result that the model invented. Total."""
    content: list[str] = []
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    before, *segments = _cut(text)
    content.append(before)
    for segment in segments:
        outcome, rest = _read_action(segment, f"call_{first_id + len(calls)}")
        if isinstance(outcome, ToolCall):
            calls.append(outcome)
        else:
            errors.append(outcome)
        content.append(rest)
    return "".join(content).strip(), tuple(calls), tuple(errors)


def _cut(text: str) -> list[str]:
    """Split the text into the part before the first action and one part per action, each with what follows it."""
    segments: list[list[str]] = [[]]
    for line in text.split("\n"):
        if _RESULT.match(line):
            break
        if _ACTION.match(line):
            segments.append([])
        segments[-1].append(line)
    return ["\n".join([*lines, ""]) for lines in segments]


def _read_action(segment: str, call_id: str) -> tuple[ToolCall | ToolCallError, str]:
    """Return the call at the start of a segment, or what is wrong with it, and the text after it."""
    label = _ACTION.match(segment)
    assert label is not None, "a segment begins with its label"
    line_end = segment.index("\n")
    head = segment[label.end() : line_end]
    name = _read_name(head)
    found = _INPUT_IN_LINE.search(segment, label.end(), line_end)
    if found is None:
        next_line = _SPACE.match(segment, line_end)
        found = None if next_line is None else _INPUT.match(segment, segment.rfind("\n", 0, next_line.end()) + 1)
    if found is None:
        message = f"an action has no input: {_WANTED}"
        return ToolCallError(kind="bad_call", raw=segment[:line_end].strip(), message=message), segment[line_end:]
    at, mark = found.end(), ""
    if fence := _FENCE.match(segment, at):
        at, mark = fence.end(), fence[1]
    elif space := _SPACE.match(segment, at):
        at = space.end()
    try:
        value, end = DECODER.raw_decode(segment, at)
    except (ValueError, RecursionError) as cause:
        line_end = segment.find("\n", at)
        line_end = len(segment) if line_end < 0 else line_end
        message = f"the action's input is not valid JSON ({str(cause)[:100]}): {_WANTED}"
        return ToolCallError(kind="bad_json", raw=segment[at:line_end], message=message), segment[line_end:]
    written = segment[at:end]
    if mark and (closing := re.compile(rf"\s*+{mark}").match(segment, end)):
        end = closing.end()
    line_end = segment.index("\n", end)
    if segment[end:line_end].strip(" \t\r*"):
        message = f"text stands after the action's input on its line: {_WANTED}"
        return ToolCallError(kind="bad_json", raw=segment[at:line_end], message=message), segment[line_end:]
    if not isinstance(value, dict) or not name:
        message = f"an action needs a tool's name and an object as its input: {_WANTED}"
        return ToolCallError(kind="bad_call", raw=segment[:end].strip(), message=message), segment[end:]
    return ToolCall(id=call_id, name=name, arguments=written), segment[end:]
