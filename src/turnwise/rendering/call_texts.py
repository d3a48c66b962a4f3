"""Text formats in which a model without its own tool format is told about tools, writes calls, and reads their results.

Formats, each a row of `CALL_TEXTS`: three for models that have none,

    hermes    <tool_call>\\n{"name": "search", "arguments": {"query": "Blue Lantern"}}\\n</tool_call>
    fenced    ```tool\\n{"name": "search", "arguments": {"query": "Blue Lantern"}}\\n```
    react     Action: search\\nAction Input: {"query": "Blue Lantern"}

and those that families of models were trained on, each in a file of its own: llama, mistral, qwen_coder, deepseek_v3,
deepseek_v31.

Reading is total: any text gives content, calls and errors. Marks inside the arguments that would end a call early are
written as JSON escapes, so that every written call can be read back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwise.core.types import ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.call_blocks import escape_marks, read_block
from turnwise.rendering.deepseek_calls import MARKS as DEEPSEEK_MARKS
from turnwise.rendering.deepseek_calls import read_deepseek, write_deepseek_v3, write_deepseek_v31
from turnwise.rendering.hermes_calls import (
    ARGUMENT_KEYS,
    CLOSING,
    OPENING,
    format_call_object,
    parse_tool_call,
    parse_tool_calls,
)
from turnwise.rendering.llama_calls import TAG, read_llama, write_llama
from turnwise.rendering.mistral_calls import ARGUMENTS, MARK, read_mistral, write_mistral
from turnwise.rendering.qwen_coder_calls import read_qwen_coder, write_qwen_coder
from turnwise.rendering.raw_json import split_members
from turnwise.rendering.react_calls import OBSERVATION, read_react, write_react

_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_PLAIN = frozenset({"type", "properties", "required", "additionalProperties", "title", "$schema"})

Read = tuple[str, tuple[ToolCall, ...], tuple[ToolCallError, ...]]
"""Content, calls and errors of a reply."""


class ReadCalls(Protocol):
    """Splits a reply into content, calls and errors. Total."""

    def __call__(self, text: str, first_id: int, tools: Sequence[ToolSpec] = ()) -> Read:
        """Return content, calls with ids `call_<first_id>` and on, and errors; `tools` determine the types of values
        without quotes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallText:
    """A text format for calls."""

    explanation: str
    """The text in the system message after the list of tools; `{call}` is replaced by an example."""
    write: Callable[[ToolCall], str]
    """Writes one call as text. Raises RenderError for a call that the format cannot express."""
    read: ReadCalls
    result: tuple[str, str]
    """The text before and after a tool's result in a user message."""
    stop: tuple[str, ...] = ()
    """Strings at which sampling stops, because a model would continue with an invented result."""
    begins: str | None = None
    """Characters with which a call or a thought may begin in a reply's text; None if any character may."""
    marks: tuple[str, ...] = ()
    """Control tokens that a model samples inside a call, if its tokenizer has them."""

    def describe(self, tools: Sequence[str], name: str, arguments: Sequence[str]) -> str:
        """Return the text that tells a model about its tools: one line per tool (`describe_tool`), and a call of `name`
        as the example."""
        example = json.dumps(dict.fromkeys(arguments, "..."), ensure_ascii=False)
        listed = "\n".join(tools)
        call = self.write(ToolCall(id="call_0", name=name, arguments=example))
        explanation = self.explanation.replace("{call}", call)
        return f"You can call tools. They are, one per line:\n{listed}\n\n{explanation}"


def describe_tool(tool: ToolSpec) -> str:
    """Describe a tool in one line: a signature if all arguments are plain values, else its JSON.

    `search(query: string, limit?: integer): Search the library. query: What to look for.` A signature takes less than
    half of the tokens of a schema, and every opening contains it. JSON keeps what a signature cannot express: nested
    values, alternatives, bounds.
    """
    properties = tool.properties
    if not set(tool.parameters) <= _PLAIN or not all(_is_plain(schema) for schema in properties.values()):
        whole = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return json.dumps(whole, ensure_ascii=False, default=dict)
    arguments = ", ".join(
        f"{name}{'' if name in tool.required else '?'}: {schema['type']}" for name, schema in properties.items()
    )
    texts = [tool.description, *(f"{name}: {text}" for name, s in properties.items() if (text := s.get("description")))]
    return f"{tool.name}({arguments}): {' '.join(' '.join(texts).split())}".removesuffix(": ")


def _is_plain(schema: object) -> bool:
    """Whether an argument's schema contains no more than a type and a description."""
    return (
        isinstance(schema, Mapping)
        and schema.get("type") in _SCALARS
        and set(schema) <= {"type", "description", "title"}
    )


def _write_hermes(call: ToolCall) -> str:
    return f"{OPENING}\n{escape_marks(format_call_object(call), (OPENING, CLOSING))}\n{CLOSING}"


def _read_hermes(text: str, first_id: int, tools: Sequence[ToolSpec] = ()) -> Read:
    return parse_tool_calls(text, first_id=first_id)


_FENCE = "```"
_FENCE_OPENING = re.compile(r"```(tool_call|tool|json)[ \t]*+\n")


def _write_fenced(call: ToolCall) -> str:
    body = format_call_object(call).replace(_FENCE, r"\u0060\u0060\u0060")
    return f"{_FENCE}tool\n{body}\n{_FENCE}"


def _read_fenced(text: str, first_id: int, tools: Sequence[ToolSpec] = ()) -> Read:
    """Read as a call every block marked as a tool's, and a block of JSON if it is an object with a name and
    arguments."""
    content: list[str] = []
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    at = 0
    while match := _FENCE_OPENING.search(text, at):
        content.append(text[at : match.start()])
        block = read_block(text, match.end(), opening=_FENCE, closing=_FENCE)
        at = block.end
        outcome = parse_tool_call(
            block.body, closed=block.closed, call_id=f"call_{first_id + len(calls)}", closing=_FENCE
        )
        if match[1] == "json" and not (isinstance(outcome, ToolCall) and _has_arguments(block.body)):
            content.append(text[match.start() : at])
        elif isinstance(outcome, ToolCall):
            calls.append(outcome)
        else:
            errors.append(outcome)
    content.append(text[at:])
    return "".join(content).strip(), tuple(calls), tuple(errors)


def _has_arguments(body: str) -> bool:
    return any(key in split_members(body) for key in ARGUMENT_KEYS)


_RESPONSE = "<tool_response>\n", "\n</tool_response>"


def _explain(how: str) -> str:
    return (
        f"To call a tool, write {how}:\n{{call}}\n"
        "The result then comes between <tool_response> and </tool_response>. "
        "When you have what you need, reply without a call."
    )


CALL_TEXTS: Mapping[str, CallText] = {
    "hermes": CallText(
        explanation=(
            "To call a tool, write its name and its arguments as JSON between these tags:\n"
            "{call}\n"
            "The result then comes between <tool_response> and </tool_response>. "
            "When you have what you need, reply without a call."
        ),
        write=_write_hermes,
        read=_read_hermes,
        result=_RESPONSE,
        begins="<",
        marks=(OPENING, CLOSING),
    ),
    "fenced": CallText(
        explanation=(
            "To call a tool, write its name and its arguments as JSON in a block:\n"
            "{call}\n"
            "The result then comes in a block marked result. When you have what you need, reply without a block."
        ),
        write=_write_fenced,
        read=_read_fenced,
        result=("```result\n", "\n```"),
        begins="<`",
    ),
    "react": CallText(
        explanation=(
            "To call a tool, write two lines:\n{call}\n"
            "The result then comes after Observation:. When you have what you need, reply without an action."
        ),
        write=write_react,
        read=read_react,
        result=("Observation: ", ""),
        stop=(OBSERVATION,),
    ),
    "llama": CallText(
        explanation=_explain("a JSON object of its name and its parameters"),
        write=write_llama,
        read=read_llama,
        result=_RESPONSE,
        begins="<{[",
        marks=(TAG,),
    ),
    "mistral": CallText(
        explanation=_explain("its name and its arguments as JSON after these marks"),
        write=write_mistral,
        read=read_mistral,
        result=_RESPONSE,
        begins="<[",
        marks=(MARK, ARGUMENTS),
    ),
    "qwen_coder": CallText(
        explanation=_explain("its name and its parameters between these tags"),
        write=write_qwen_coder,
        read=read_qwen_coder,
        result=_RESPONSE,
        begins="<",
        marks=(OPENING, CLOSING),
    ),
    "deepseek_v3": CallText(
        explanation=_explain("its name and its arguments as JSON between these marks"),
        write=write_deepseek_v3,
        read=read_deepseek,
        result=_RESPONSE,
        begins="<",
        marks=DEEPSEEK_MARKS,
    ),
    "deepseek_v31": CallText(
        explanation=_explain("its name and its arguments as JSON between these marks"),
        write=write_deepseek_v31,
        read=read_deepseek,
        result=_RESPONSE,
        begins="<",
        marks=DEEPSEEK_MARKS,
    ),
}
"""The formats by name (`renderer.calls`)."""
