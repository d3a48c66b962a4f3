"""Reads a model's text as calls of the tools on offer, and writes their answers as the model reads them. Pure
functions.

A call can be written in three forms; the first form that occurs in an action counts, and all its calls run in order:

    <tool_call>{"name": "python", "arguments": {"code": "print(1)"}}</tool_call>      any tool
    <python>print(1)</python>                                                           a tool with one parameter
    ```python ... ```                                                                   a tool with one parameter

The tool's name replaces "python". The answer has the same form. The content of a tag or a fence is the value of the
parameter byte for byte, without what belongs to the form: see `_take_content`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.core.types import ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.hermes_calls import parse_tool_calls

Form = Literal["json", "tag", "fence"]

_RESULT_TAGS = {"search": "information"}
"""Tag around the answer of a tool with this name to a call in a tag; "output" for any other. As in Search-R1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The calls in an action."""

    form: Form
    calls: tuple[ToolCall, ...]
    errors: tuple[ToolCallError, ...] = ()


def read_action(text: str, tools: Sequence[ToolSpec]) -> Written | None:
    """Return the calls in an action, in order; None if there are none of these tools. Any text gives a result."""
    if "<tool_call>" in text:
        _, calls, errors = parse_tool_calls(text)
        return Written(form="json", calls=calls, errors=errors)
    parameters = {spec.name: name for spec in tools if (name := only_parameter(spec))}
    if not parameters:
        return None
    names = "|".join(map(re.escape, parameters))
    openings: list[tuple[Form, str, str]] = [
        ("tag", rf"<({names})>", "</{}>"),
        ("fence", rf"```[ \t\n]*({names})[ \t]*\n", "```"),
    ]
    for form, opening, closing in openings:
        if found := _find_blocks(text, re.compile(opening), closing):
            calls = tuple(
                ToolCall(id=f"call_{place}", name=name, arguments=json.dumps({parameters[name]: value}))
                for place, (name, content) in enumerate(found)
                for value in [_take_content(content, form)]
            )
            return Written(form=form, calls=calls)
    return None


def only_parameter(spec: ToolSpec) -> str | None:
    """Return the parameter that a call without names fills: the only one that is required, which is a text; None if
    there is none."""
    if len(spec.required) != 1:
        return None
    (name,) = spec.required
    schema = spec.properties.get(name)
    return name if isinstance(schema, Mapping) and schema.get("type") == "string" else None


def _find_blocks(text: str, opening: re.Pattern[str], closing: str) -> list[tuple[str, str]]:
    """Return name and content of every block that is closed, in linear time; `{}` in `closing` is replaced by the
    name."""
    blocks: list[tuple[str, str]] = []
    never_closed: set[str] = set()
    place = 0
    while match := opening.search(text, place):
        name, place = match[1], match.end()
        if name in never_closed:
            continue
        mark = closing.format(name)
        end = text.find(mark, place)
        if end < 0:
            never_closed.add(name)
            continue
        blocks.append((name, text[place:end]))
        place = end + len(mark)
    return blocks


def _take_content(content: str, form: Form) -> str:
    """Return the content of a tag or a fence, without the line break after its opening and before its closing, and
    without the spaces on the lines of these marks. For a single line, the spaces around it belong to the form too.

    Everything in between is unchanged: indentation, blank lines and trailing spaces of lines are the writer's.
    """
    whole = content.strip()
    if "\n" not in whole:
        return whole
    if form == "tag":  # the opening of a fence ends with its line
        first, _, rest = content.partition("\n")
        content = rest if not first.strip() else content.lstrip(" \t")
    body, _, last = content.rpartition("\n")
    return content.rstrip(" \t") if last.strip() else body.removesuffix("\r")


def write_observation(action: str, form: Form, answers: Sequence[tuple[str, str]]) -> str:
    """Return what the model reads after its action, from pairs of a tool's name and its answer.

    If the action has opened the answer's block itself, as it does when generation stops there, the block is closed.
    """
    body = "\n".join(answer for _, answer in answers)
    tail = action.rstrip()
    if tail.endswith("```output"):
        return f"\n{body}\n```\n"
    if tail.endswith("<output>"):
        return f"\n{body}\n</output>\n"
    if form == "fence":
        return f"\n```output\n{body}\n```\n"
    if form == "json":
        return "".join(f"\n<tool_response>\n{answer}\n</tool_response>" for _, answer in answers) + "\n"
    tag = _RESULT_TAGS.get(answers[0][0], "output") if answers else "output"
    return f"\n<{tag}>\n{body}\n</{tag}>\n"
