"""Rows of documents are read back as they were written; a wrong one is one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.documents import Document
from turnwise.core.errors import DataError
from turnwise.core.types import Message, TextPart, ToolCall, ToolSpec
from turnwise.exchange.document_rows import load_documents, read_document, to_document_row

CALL = ToolCall(id="call_1_0", name="search", arguments='{"query": "Blue Lantern"}')
TALK = (
    Message(role="user", content=(TextPart(text="Who wrote it?"),)),
    Message(role="assistant", content=(), tool_calls=(CALL,)),
    Message(role="tool", content=(TextPart(text="Mira Tolen."),), tool_call_id="call_1_0", name="search"),
)


@pytest.mark.parametrize(
    "document",
    [
        Document(id="a", text="One line.\nAnother."),
        Document(id="b", token_ids=(3, 0, 7)),
        Document(
            id="c", messages=TALK, tools=(ToolSpec(name="search", description="", parameters={"type": "object"}),)
        ),
    ],
)
def test_a_row_is_read_back(document: Document) -> None:
    assert read_document(json.loads(json.dumps(to_document_row(document)))) == document


def test_empty_rows_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text('{"text": " \\n"}\n{"id": "x", "text": "a b"}\n{"messages": []}\n')
    documents, num_empty = load_documents(path)
    assert [(place.rpartition(":")[2], each.id) for place, each in documents] == [("2", "x")]
    assert num_empty == 2
    path.write_text('{"text": ""}\n')
    with pytest.raises(DataError, match="all 1 documents are empty"):
        load_documents(path)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"body": "x"}, "columns 'body'; a document has exactly one of 'text', 'messages', 'token_ids'"),
        ({"text": "x", "token_ids": [1]}, "columns 'text', 'token_ids'"),
        ({"text": 3}, '"text" is of type int'),
        ({"token_ids": [1, -2]}, '"token_ids" holds -2'),
        ({"token_ids": [1, True]}, '"token_ids" holds True'),
        ({"token_ids": "1 2"}, '"token_ids" is of type str'),
        ({"text": "x canary GUID 26b5c67b"}, "has the canary 'canary GUID 26b5c67b'"),
        ({"messages": ["hello"]}, "message 0 is of type str"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role='robot' is unknown"),
    ],
)
def test_a_wrong_row_is_named(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_document(row)
