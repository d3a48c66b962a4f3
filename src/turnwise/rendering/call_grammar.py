"""The grammar of a reply that calls tools in the hermes/Qwen format, for sampling that cannot write a malformed call.

What a call may be follows from the tools on offer: one of their names, arguments by its schema. Text before the calls is free.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnwise.core.types import Grammar, ToolSpec


def build_call_grammar(tools: Sequence[ToolSpec], *, special_tokens: bool, max_calls: int = 1) -> Grammar:
    """Free text, then one to `max_calls` calls as `format_tool_call` writes them.

    `special_tokens`: `<tool_call>` and `</tool_call>` are tokens of their own (Qwen3), not text. Free text holds no `<`.
    Raises ValueError without tools or when `max_calls` is below 1.
    """
    if not tools or max_calls < 1:
        raise ValueError(f"a grammar of calls needs tools and at least one call, not {len(tools)} tools and max_calls={max_calls}")
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
    text = f"""start: TEXT? call{{1,{max_calls}}}
TEXT: /[^<]+/
call: {opening} "\\n" body "\\n" {closing} "\\n"?
body: %json {json.dumps(calls)}
"""
    return Grammar(kind="lark", text=text)
