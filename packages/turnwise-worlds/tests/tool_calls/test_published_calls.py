"""One written row of every published layout of tool calls, read whole or refused by line."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from published_rows import EARLIER, ENDINGS, QUESTION, SYSTEM, WHOLE, Layout, check_layout

from turnwise_worlds.tool_calls.rows import to_call_row


def read_calls(row: Any) -> Any:
    """A row of wanted calls as the others are compared: these calls are the answer."""
    read = to_call_row(row, {})
    calls = [[name, dict(allowed)] for name, allowed in read.calls]
    return SimpleNamespace(before=read.messages[:-1], question=read.messages[-1].text, answers=(json.dumps(calls),))


BFCL: dict[str, Any] = {
    "id": "simple_python_0",
    "question": [[{"role": "user", "content": "Find the area."}]],
    "function": [
        {
            "name": "area",
            "description": "Of a triangle.",
            "parameters": {
                "type": "dict",
                "properties": {"base": {"type": "integer"}, "unit": {"type": "string", "description": "in m"}},
                "required": ["base"],
            },
        }
    ],
    "ground_truth": [{"area": {"base": [10], "unit": ["m", ""]}}],
}
WANTED = '[["area", {"base": [10], "unit": ["m", ""]}]]'
LAYOUTS = {
    "BFCL": Layout(reader=read_calls, row=BFCL, messages=(("user", "Find the area."),), answers=(WANTED,)),
    "BFCL, columns of text": Layout(
        reader=read_calls,
        row={name: value if name == "id" else json.dumps(value) for name, value in BFCL.items()},
        messages=(("user", "Find the area."),),
        answers=(WANTED,),
    ),
    "BFCL, irrelevance": Layout(
        reader=read_calls,
        row={
            "id": "live_irrelevance_7-2-0",
            "question": [[SYSTEM, *EARLIER, QUESTION]],
            "function": BFCL["function"],
        },
        messages=WHOLE,
        answers=("[]",),
    ),
    "BFCL, relevance": Layout(
        reader=read_calls,
        row={name: BFCL[name] for name in ("question", "function")} | {"id": "live_relevance_0-0-0"},
        refused='without "ground_truth"',
    ),
    "BFCL, Java": Layout(reader=read_calls, row={**BFCL, "id": "simple_java_0"}, refused="source text"),
    "BFCL, several turns": Layout(
        reader=read_calls,
        row={"id": "multi_turn_base_0", "question": [[QUESTION], [QUESTION]], "involved_classes": ["TradingBot"]},
        refused='"question" has 2 turns',
    ),
    "BFCL, a call that nothing fulfils": Layout(
        reader=read_calls,
        row={**BFCL, "ground_truth": [{"area": {"base": [10], "size": [5]}}]},
        refused=r"ground_truth\[0\].*no call can match it",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_published_row_of_calls_is_read_whole_or_refused_by_line(tmp_path: Path, name: str, ending: str) -> None:
    check_layout(LAYOUTS[name], tmp_path / f"rows{ending}")
