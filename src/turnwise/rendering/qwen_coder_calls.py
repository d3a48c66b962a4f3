"""Tool calls in the format of Qwen3-Coder (and Qwen3.5): tags, with each argument's value between them unchanged.

    <tool_call>
    <function=search>
    <parameter=query>
    Blue Lantern
    </parameter>
    </function>
    </tool_call>

A value is text, without the new lines that the format puts around it; it is read as JSON only if the tool's schema does
not allow text there. Nothing is quoted, so a closing tag inside a value ends it only if the format continues after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from turnwise.core.errors import RenderError
from turnwise.core.types import ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.raw_json import DECODER, is_json, split_members
from turnwise.rendering.schema_types import list_types

_FUNCTION = re.compile(r"(?:<tool_call>\s*+)?<function=([^>\n]*+)>")
_OPENING = re.compile(r"<tool_call>|<function=")
_PARAMETER = re.compile(r"\s*+<parameter=([^>\n]*+)>")
_VALUE_END = re.compile(r"</parameter>(?=\s*+(?:<parameter=|</function>|</tool_call>|\Z))")
_END = re.compile(r"\s*+(?:</function>\s*+(?:</tool_call>)?|</tool_call>)")
_NOT_IN_VALUE = re.compile(r"</function>\s*+</tool_call>|<parameter=[^>\n]++>")
_WANTED = "write <tool_call>, <function=name>, <parameter=name> value </parameter> ..., </function>, </tool_call>"


def write_qwen_coder(call: ToolCall) -> str:
    """Write one call. Raises RenderError for what could not be read back: names with a tag, or a value that ends the
    call."""
    try:
        members = split_members(call.arguments)
    except (ValueError, RecursionError):
        members = {"": '""'}
    values = {name: DECODER.decode(raw) for name, raw in members.items()}
    texts = {name: value if isinstance(value, str) else members[name] for name, value in values.items()}
    lines = [f"<parameter={name}>\n{text}\n</parameter>" for name, text in texts.items()]
    text = "\n".join(["<tool_call>", f"<function={call.name}>", *lines, "</function>", "</tool_call>"])
    content, calls, errors = read_qwen_coder(text, 0)
    if content or errors or [(each.name, json.loads(each.arguments)) for each in calls] != [(call.name, texts)]:
        raise RenderError(
            f"cannot write this call in tags: {call.name}({call.arguments})"[:300]
            + '; use plain names and values without the tags, or renderer.calls="hermes"'
        )
    return text


def read_qwen_coder(
    text: str, first_id: int, tools: Sequence[ToolSpec] = ()
) -> tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Return content, calls and errors of a reply; without the tools every value is text. Total and linear."""
    content: list[str] = []
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    specs = {tool.name: tool for tool in tools}
    at = 0
    while opening := _OPENING.search(text, at):
        content.append(text[at : opening.start()])
        outcome, at = _read_call(text, opening.start(), f"call_{first_id + len(calls)}", specs)
        outcome = _check_rest(outcome, text, opening.start(), at)
        if isinstance(outcome, ToolCall):
            calls.append(outcome)
        else:
            errors.append(outcome)
            if outcome.kind == "unclosed":
                break  # nothing after it closes either, or it would not be a value of this call
    else:
        content.append(text[at:])
    return "".join(content).strip(), tuple(calls), tuple(errors)


def _check_rest(
    outcome: ToolCall | ToolCallError, text: str, start: int, at: int
) -> ToolCall | ToolCallError:
    """Return the outcome; malformed if the text after the call closes a tag that is not open, so that a value was cut
    short."""
    following = _OPENING.search(text, at)
    rest = text[at : following.start() if following else len(text)]
    if isinstance(outcome, ToolCallError) or not ("</parameter>" in rest or "</function>" in rest):
        return outcome
    message = f"a value holds the closing tags of a call, where the call ends; write them in another way. {_WANTED}"
    return ToolCallError(kind="bad_call", raw=text[start:at] + rest, message=message)


def _read_call(
    text: str, start: int, call_id: str, specs: Mapping[str, ToolSpec]
) -> tuple[ToolCall | ToolCallError, int]:
    """Read the call that opens at `start`; returns it, or what is wrong with it, and where the text continues."""
    kind: Literal["unclosed", "bad_call"]
    function = _FUNCTION.match(text, start)
    if function is None or not function[1].strip():
        closing = re.compile("</tool_call>|<tool_call>").search(text, start + 1)
        end = len(text) if closing is None else closing.end() if closing[0].startswith("</") else closing.start()
        kind = "unclosed" if closing is None else "bad_call"
        message = f"a tool call names no function: {_WANTED}"
        return ToolCallError(kind=kind, raw=text[start:end], message=message), end
    name, at = function[1].strip(), function.end()
    spec = specs.get(name)
    pairs: dict[str, str] = {}
    while parameter := _PARAMETER.match(text, at):
        value_end = _VALUE_END.search(text, parameter.end())
        if value_end is None:
            message = f"a value was not closed with </parameter>: {_WANTED}"
            return ToolCallError(kind="unclosed", raw=text[start:], message=message), len(text)
        key, value = parameter[1].strip(), text[parameter.end() : value_end.start()]
        if _NOT_IN_VALUE.search(value):
            message = f"the value of {key[:50]!r} was not closed with </parameter>: {_WANTED}"
            at = value_end.end()
            return ToolCallError(kind="bad_call", raw=text[start:at], message=message), at
        if key in pairs or not key:
            what = f"the parameter {key[:50]!r} is given twice" if key else "a parameter has no name"
            closing = re.compile("</tool_call>").search(text, value_end.end())
            at = closing.end() if closing else len(text)
            return ToolCallError(kind="bad_call", raw=text[start:at], message=f"{what}: {_WANTED}"), at
        pairs[key] = _to_json(_trim(value), key, spec)
        at = value_end.end()
    ending = _END.match(text, at)
    if ending is None:
        closing = re.compile("</tool_call>").search(text, at)
        end_at = closing.end() if closing else len(text)
        message = f"a function was not closed with </function>: {_WANTED}"
        kind = "bad_call" if closing else "unclosed"
        return ToolCallError(kind=kind, raw=text[start:end_at], message=message), end_at
    written = ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {raw}" for key, raw in pairs.items())
    return ToolCall(id=call_id, name=name, arguments=f"{{{written}}}"), ending.end()


def _trim(value: str) -> str:
    """Return the value without the one new line that the format puts before and after it."""
    return value.removeprefix("\n").removesuffix("\n")


def _to_json(value: str, key: str, spec: ToolSpec | None) -> str:
    """Return a value's JSON: as spelled if the schema wants a number, a truth value, null, a list or an object and the
    text is one; else a string."""
    schema: Any = None if spec is None else spec.properties.get(key)
    kinds = frozenset[str]() if spec is None else list_types(schema, spec.parameters)
    word = value.strip()
    if "boolean" in kinds and word.lower() in ("true", "false"):
        return word.lower()
    if kinds - {"string"} and is_json(word) and _name_kind(DECODER.decode(word)) & kinds:
        return word
    return json.dumps(value, ensure_ascii=False)


def _name_kind(value: object) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, float):
        return frozenset({"number", "integer"} if value.is_integer() else {"number"})
    names = {int: {"integer", "number"}, str: {"string"}, list: {"array"}, dict: {"object"}, type(None): {"null"}}
    return frozenset(names[type(value)] - {"string"})
