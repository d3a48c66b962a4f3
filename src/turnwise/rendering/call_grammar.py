"""Build the grammar of a reply in the hermes/Qwen format, so that sampling cannot write a malformed tool call.

A call names one of the offered tools, with arguments that match its schema. Text before the calls is free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.types import Grammar, ToolSpec


def build_call_grammar(
    tools: Sequence[ToolSpec], *, special_tokens: bool, max_calls: int = 1, min_calls: int = 1, reasoning: bool = False
) -> Grammar:
    """Build a grammar of free text and then `min_calls` to `max_calls` calls, as `format_tool_call` writes them.

    With `min_calls` 0 a reply may consist of text only. `special_tokens` says that `<tool_call>` and `</tool_call>` are
    single tokens (Qwen3), not text. Free text contains no `<`; with `reasoning`, for which `<think>` and `</think>`
    must be single tokens too, it contains these tokens and any text. Raises ValueError without tools, if `max_calls` is
    below 1 or `min_calls`, or for reasoning without special tokens.
    """
    if not tools or max_calls < 1 or not 0 <= min_calls <= max_calls:
        raise ValueError(
            f"a grammar of calls needs tools and at least one call, not {len(tools)} tools and "
            f"min_calls={min_calls}, max_calls={max_calls}"
        )
    if reasoning and not special_tokens:
        raise ValueError(
            "reasoning=True needs special_tokens=True: if <tool_call> is plain text, the reasoning could contain it"
        )
    calls = {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool.name},
                    "arguments": _move_references(tool.parameters, f"#/anyOf/{place}/properties/arguments"),
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for place, tool in enumerate(tools)
        ]
    }
    opening, closing = ("<tool_call>", "</tool_call>") if special_tokens else ('"<tool_call>"', '"</tool_call>"')
    before, characters = ("(TEXT | <think> | </think>)*", r"(.|\n)") if reasoning else ("TEXT?", "[^<]")
    text = f"""start: {before} call{{{min_calls},{max_calls}}}
TEXT: /{characters}+/
call: {opening} "\\n" body "\\n" {closing} "\\n"?
body: %json {json.dumps(calls)}
"""
    return Grammar(kind="lark", text=text)


def _move_references(schema: Any, place: str) -> Any:
    """Adapt a schema that becomes part of a larger document: its references to itself (`#/$defs/Point`) then point
    below `place`."""
    if isinstance(schema, Mapping):
        moved = {key: _move_references(value, place) for key, value in schema.items()}
        reference = moved.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            moved["$ref"] = place + reference[1:]
        return moved
    return [_move_references(value, place) for value in schema] if isinstance(schema, list | tuple) else schema
