"""Rows with a canary string are found, and never trained on."""

from __future__ import annotations

import json

import pytest

from turnwise.core.errors import DataError
from turnwise.environments.canaries import find_canary
from turnwise.environments.file_splits import load_splits
from turnwise.exchange.chat_rows import load_chat_rows


@pytest.mark.parametrize(
    ("row", "canary"),
    [
        ({"question": "q", "canary": "abc"}, "abc"),
        ({"question": "Keep out. canary GUID 26b5c67b-86a4"}, "canary GUID 26b5c67b-86a4"),
        ({"messages": [{"role": "user", "content": "BENCHMARK DATA. Canary  GUID x:1 "}]}, "Canary  GUID x:1"),
        ({"meta": {"note": ["canary string: 7"]}}, "canary string: 7"),
        ({"question": "What is a canary string in a benchmark ?"}, None),
        ({"question": "What sings in a canary cage ?", "canary": ""}, None),
        ({"question": "Which canary strings a bow ?", "canary": None}, None),
        ({"question": "Where are the Canary Islands ?", "answers": ["a canary"]}, None),
    ],
)
def test_canaries_are_found_and_birds_are_not(row, canary: str | None) -> None:
    assert find_canary(row) == canary


def test_training_rows_with_a_canary_are_refused_and_held_out_ones_are_not(tmp_path) -> None:
    marked, plain = tmp_path / "marked.jsonl", tmp_path / "plain.jsonl"
    marked.write_text('{"question": "q", "canary": "abc"}\n', encoding="utf-8")
    plain.write_text('{"question": "p"}\n', encoding="utf-8")
    kept = load_splits({"train": str(plain), "heldout": str(marked)}, dict, 0)
    assert kept.row("heldout", 0)["question"] == "q"
    with pytest.raises(DataError, match=r"marked.jsonl:1: the row has the canary 'abc': it is for evaluation"):
        load_splits({"train": str(marked), "heldout": str(plain)}, dict, 0)


def test_one_marked_row_of_many_is_left_out_and_named(tmp_path) -> None:
    rows = [{"question": str(number)} for number in range(99)] + [{"question": "q", "canary": "abc"}]
    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    train.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    heldout.write_text('{"question": "p"}', encoding="utf-8")
    splits = load_splits({"train": str(train), "heldout": str(heldout)}, dict, 0)
    assert splits.count("train") == 99
    assert any(
        "1 of 100 rows are left out" in note and "train.jsonl:100: the row has the canary" in note
        for note in splits.notes
    )


def test_conversations_with_a_canary_are_not_taught(tmp_path) -> None:
    path = tmp_path / "chats.jsonl"
    messages = [{"role": "user", "content": "q canary GUID 1"}, {"role": "assistant", "content": "a"}]
    path.write_text(json.dumps({"messages": messages}), encoding="utf-8")
    assert len(load_chat_rows(path, trains=False)) == 1
    with pytest.raises(DataError, match=r"chats.jsonl:1: the row has the canary 'canary GUID 1'"):
        load_chat_rows(path)
