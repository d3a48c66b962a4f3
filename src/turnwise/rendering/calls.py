"""A format for several tool calls with named arguments in one reply, in few tokens: one call per line of a block.

    <tool_call> weather42 city17 = Aldor day63 = 7
     news28 </tool_call>

A value is a bare word or JSON. `ToolCall.arguments` is the JSON object of the pairs: a value that is JSON keeps its
spelling, numbers included, and any other word becomes a string. A reply without a call is `<answer> text </answer>`.
Meant for small models that learn the format from nothing: ToolRL's (2504.13958) block of calls without the punctuation
of JSON. Chat models use `rendering.chat`. `rendering.tags` handles tags and tokens; this module reads and writes the
text inside the block.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from turnwise.core.errors import RenderError
from turnwise.core.types import IntArray, Message, ToolCall, ToolCallError, ToolSpec
from turnwise.rendering.raw_json import DECODER, split_members
from turnwise.rendering.tags import TagFormat, TagRenderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CALLS_FORMAT = TagFormat(
    action="tool_call",
    tool="calls",
    argument="text",
    observation="tool_response",
    gaps=("\n", "", "", "\n"),
    ends_unmarked=None,
    no_action=(
        "no <tool_call> or <answer> found; write <tool_call> name argument = value </tool_call> or <answer> "
        "text </answer>"
    ),
    unclosed="a tag was opened and not closed; end calls with </tool_call> and an answer with </answer>",
)
"""The tags. The whole block is one call of a tool named "calls", but only inside `TagRenderer`."""

_NAME = re.compile(r'[^\s="]+')
_SPACE = re.compile(r"\s*")


class CallsRenderer:
    """Implements `core.protocols.Renderer`. The tools on offer are not rendered: the prompt shows them."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        ends: Sequence[int] = (),
        max_observation_tokens: int | None = None,
        marker: str | None = None,
    ) -> None:
        """`ends`, `max_observation_tokens` and `marker` as in `TagRenderer`."""
        self._tags = TagRenderer(
            tokenizer, CALLS_FORMAT, ends=ends, max_observation_tokens=max_observation_tokens, marker=marker
        )
        self.stop_token_ids = self._tags.stop_token_ids
        self.stop = self._tags.stop

    @property
    def tags(self) -> TagRenderer:
        """The renderer of everything but the lines of calls."""
        return self._tags

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """See `TagRenderer.open`."""
        return self._tags.open_with(messages, self.encode_reply)

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """See `TagRenderer.extend`; each tool's answer has its own `<tool_response>`."""
        return self._tags.extend(prompt_ids, completion_ids, observations, tools)

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        """See `Renderer.parse` and `parse_calls`. The first complete block or `<answer>` wins."""
        message = self._tags.parse(prompt_ids, completion_ids)
        if not message.tool_calls:
            return message
        (block,) = message.tool_calls
        calls, errors = parse_calls(json.loads(block.arguments)[CALLS_FORMAT.argument].strip(), id_prefix=block.id)
        return replace(message, tool_calls=calls, tool_errors=errors)

    def encode_reply(self, message: Message) -> IntArray:
        """See `Renderer.encode_reply`.

        Raises RenderError for a name with a space, `=` or `"`, or arguments that are not an object.
        """
        if not message.tool_calls:
            return self._tags.encode_reply(message)
        text = json.dumps({CALLS_FORMAT.argument: format_calls(message.tool_calls)}, ensure_ascii=False)
        block = ToolCall(id=message.tool_calls[0].id, name=CALLS_FORMAT.tool, arguments=text)
        return self._tags.encode_reply(replace(message, tool_calls=(block,)))


def format_calls(calls: Sequence[ToolCall]) -> str:
    """Write one line per call, as `parse_calls` reads it. Raises RenderError for what the format cannot express."""
    return "\n ".join(map(_format_call, calls))


def _format_call(call: ToolCall) -> str:
    try:
        arguments = split_members(call.arguments)
    except (ValueError, RecursionError):
        arguments = {"": ""}
    if not all(_NAME.fullmatch(name) for name in (call.name, *arguments)):
        raise RenderError(
            f"cannot write this call as name argument = value: {call.name}({call.arguments})"[:300]
            + '; use plain names and a JSON object of arguments, or renderer.kind="chat"'
        )
    return " ".join((call.name, *(f"{key} = {_format_value(raw)}" for key, raw in arguments.items())))


def _format_value(raw: str) -> str:
    """Write a string as a bare word if it can be one; else keep the JSON's spelling, on one line."""
    value = DECODER.decode(raw)
    if isinstance(value, str) and _NAME.fullmatch(value) and not _is_json(value) and value[0] not in "[{":
        return value
    return json.dumps(value, ensure_ascii=False) if "\n" in raw else raw


def parse_calls(text: str, *, id_prefix: str) -> tuple[tuple[ToolCall, ...], tuple[ToolCallError, ...]]:
    """Read the calls of a block, one per line, and an error for each other line. An empty block is one error. Total.

    Ids are `<id_prefix>_0`, `<id_prefix>_1`, ...
    """
    calls: list[ToolCall] = []
    errors: list[ToolCallError] = []
    for line in text.split("\n"):
        try:
            name, arguments = _parse_line(line.strip())
        except ValueError as cause:
            errors.append(
                ToolCallError(kind="bad_call", raw=line, message=f"a call must be name argument = value ...: {cause}")
            )
        else:
            pairs = (f"{json.dumps(key, ensure_ascii=False)}: {raw}" for key, raw in arguments.items())
            written = "{" + ", ".join(pairs) + "}"
            calls.append(ToolCall(id=f"{id_prefix}_{len(calls)}", name=name, arguments=written))
    return tuple(calls), tuple(errors)


def _parse_line(line: str) -> tuple[str, dict[str, str]]:
    """Read the name and the JSON of every argument, as spelled. Raises ValueError saying what was expected."""
    name, at = _read_name(line, 0)
    arguments: dict[str, str] = {}
    while at < len(line):
        key, at = _read_name(line, at)
        if line[at : at + 1] != "=":
            raise ValueError(f"'=' was expected after {key[:50]!r}")
        if key in arguments:
            raise ValueError(f"argument {key[:50]!r} is given twice")
        arguments[key], at = _read_value(line, _skip(line, at + 1))
    return name, arguments


def _read_name(line: str, at: int) -> tuple[str, int]:
    match = _NAME.match(line, at)
    if match is None:
        raise ValueError("a name was expected")
    return match[0], _skip(line, match.end())


def _read_value(line: str, at: int) -> tuple[str, int]:
    if line[at : at + 1] in ('"', "[", "{"):
        try:
            _, end = DECODER.raw_decode(line, at)
        except (ValueError, RecursionError):
            raise ValueError("a value is not valid JSON") from None
        return line[at:end], _skip(line, end)
    word, at = _read_name(line, at)
    return word if _is_json(word) else json.dumps(word, ensure_ascii=False), at


def _is_json(word: str) -> bool:
    """Whether a word is a finite JSON number, true, false or null; any other is a string."""
    try:
        value = DECODER.decode(word)
    except (ValueError, RecursionError):
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _skip(line: str, at: int) -> int:
    match = _SPACE.match(line, at)
    return match.end() if match else at
