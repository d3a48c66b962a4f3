"""The calls of 499 written replies, as vLLM's own parsers and published rules read them, or a stated difference.

`peers/make_call_golden.py` writes the numbers; `call_table.py` prints the table of docs/renderers.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from call_table import GOLDEN, read_calls, write_call_table
from peers.call_replies import FORMATS, list_replies


@pytest.mark.parametrize("name", FORMATS)
def test_the_calls_are_those_of_the_reference_or_the_difference_is_stated(name: str) -> None:
    replies, rows = list(list_replies(name)), GOLDEN["formats"][name]
    assert [reply.text for reply in replies] == [row["reply"] for row in rows], "run peers.make_call_golden again"
    for number, (reply, row) in enumerate(zip(replies, rows, strict=True)):
        same = read_calls(name, reply.text) == row["calls"]
        assert same == (not reply.differs), f"{name}[{number}]: {reply.text!r}; stated: {reply.differs or 'none'}"


def test_there_are_enough_replies() -> None:
    assert sum(map(len, GOLDEN["formats"].values())) == 499


def test_the_document_has_the_table() -> None:
    document = Path(__file__).parents[2] / "docs" / "renderers.md"
    assert write_call_table() in document.read_text(encoding="utf-8")
