"""Turnwise's own calls for the replies of `peers/call_replies.py`, and the table of docs/renderers.md.

    PYTHONPATH=. python tests/agreement/call_table.py
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from peers.call_replies import FORMATS, TOOLS, list_replies

from turnwise.core.types import ToolSpec, to_ids
from turnwise.rendering.call_texts import CALL_TEXTS
from turnwise.rendering.tags import FORMATS as TAG_FORMATS
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import encode_text, train_tokenizer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "calls.json").read_text(encoding="utf-8"))
READERS = {"mistral_list": "mistral"}
"""Format of the table to the name of its reader, where they differ."""
REFERENCES = {"react": "its rule", "fenced": "its rule", "search_r1": "its rule", "retool": "its rule"}


def read_calls(name: str, text: str) -> list[dict[str, Any]]:
    """The calls that Turnwise reads, as the reference file has them."""
    if name in TAG_FORMATS:
        calls = _tag_renderer(name)(text)
    else:
        tools = [ToolSpec(name=tool["name"], description="", parameters=tool["parameters"]) for tool in TOOLS]  # type: ignore[arg-type]
        _, calls, _ = CALL_TEXTS[READERS.get(name, name)].read(text, 0, tools)
    return [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls]


@cache
def _tag_renderer(name: str) -> Any:
    tokenizer = train_tokenizer(["a b c"] * 20, vocab_size=300, special_tokens=("<|endoftext|>",))
    renderer = TagRenderer(tokenizer, TAG_FORMATS[name])
    return lambda text: renderer.parse(to_ids([1]), to_ids(encode_text(tokenizer, text))).tool_calls


def write_call_table() -> str:
    """One row per format: replies, how many agree, and what differs and how often."""
    version = GOLDEN["vllm"]
    lines = ["| format | reference | replies | same calls | other calls, and why |", "|---|---|---|---|---|"]
    for name in FORMATS:
        replies = list(list_replies(name))
        reasons: dict[str, int] = {}
        for reply in replies:
            if reply.differs:
                reasons[reply.differs] = reasons.get(reply.differs, 0) + 1
        stated = "; ".join(f"{count}: {reason}" for reason, count in reasons.items()) or "none"
        reference = REFERENCES.get(name, f"vLLM {version}")
        lines.append(f"| {name} | {reference} | {len(replies)} | {len(replies) - sum(reasons.values())} | {stated} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(write_call_table() + "\n")
