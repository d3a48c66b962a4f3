"""The grammar of a reply that calls tools in the hermes/Qwen format, for sampling that cannot write a malformed call.

What a call may be follows from the tools on offer: one of their names, arguments by its schema. Text before the calls
is free."""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnwise.core.types import Grammar, ToolSpec


def build_call_grammar(
    tools: Sequence[ToolSpec], *, special_tokens: bool, max_calls: int = 1, min_calls: int = 1, reasoning: bool = False
) -> Grammar:
    """Free text, then `min_calls` to `max_calls` calls as `format_tool_call` writes them; with `min_calls` 0 a reply
    may be text alone.

    `special_tokens`: `<tool_call>` and `</tool_call>` are tokens of their own (Qwen3), not text. Free text holds no
    `<`; with `reasoning`, for which `<think>` and `</think>` must be tokens of their own too, it holds those and
    whatever else is text.
    Raises ValueError without tools, when `max_calls` is below 1 or `min_calls`, or for reasoning without special
    tokens."""
    if not tools or max_calls < 1 or not 0 <= min_calls <= max_calls:
        raise ValueError(
            f"a grammar of calls needs tools and at least one call, not {len(tools)} tools and "
            f"min_calls={min_calls}, max_calls={max_calls}"
        )
    if reasoning and not special_tokens:
        raise ValueError(
            "reasoning=True needs special_tokens=True: where <tool_call> is text, text that may hold anything may "
            "hold it"
        )
    calls = {
        "anyOf": [
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": dict(tool.parameters)},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for tool in tools
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
