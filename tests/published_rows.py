"""Rows in the layouts that data sets are published in, and what a reader makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import DataError
from turnwise.environments.data_rows import load_rows

ENDINGS = (".jsonl", ".json", ".parquet")
SYSTEM = {"role": "system", "content": "Give every number in base seven."}
EARLIER = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello, what is it?"}]
ASKED = (("user", "What is 3 + 5?"),)
WHOLE = (
    ("system", "Give every number in base seven."),
    ("user", "Hello."),
    ("assistant", "Hello, what is it?"),
    ("user", "What is 3 + 5?"),
)
QUESTION = {"role": "user", "content": "What is 3 + 5?"}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A row, and what is read of it: the messages and the answers, or what its refusal says."""

    reader: Callable[[Any], Any]
    row: dict[str, Any]
    messages: tuple[tuple[str, str], ...] = ()
    answers: tuple[str, ...] = ()
    refused: str = ""


def check_layout(layout: Layout, path: Path) -> None:
    """Write the row to a file, whose ending says how, and compare what is read with what the layout says."""
    ending = path.suffix
    if ending == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        try:
            parquet.write_table(arrow.Table.from_pylist([layout.row]), path)
        except arrow.ArrowException:
            pytest.skip("published as JSON only: Parquet has one type per list, and no empty objects")
    else:
        path.write_text(json.dumps([layout.row] if ending == ".json" else layout.row), encoding="utf-8")
    if layout.refused:
        with pytest.raises(DataError, match=rf"rows\{ending}:1: .*{layout.refused}"):
            load_rows(path, layout.reader)
        return
    [(_, read)] = load_rows(path, layout.reader)
    messages = (*((message.role, message.text) for message in read.before), ("user", read.question))
    assert (messages, read.answers) == (layout.messages, layout.answers)
