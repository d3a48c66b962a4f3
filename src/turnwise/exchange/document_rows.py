"""Rows of documents for continual pre-training.

    {"text": "..."}                                 plain text
    {"messages": [...], "tools": [...]}             a conversation in OpenAI's layout, of any roles
    {"token_ids": [...]}                            tokens of the run's own tokenizer

`id` names a row; further columns are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnwise.core.documents import Document
from turnwise.core.errors import DataError
from turnwise.environments.canaries import refuse_canary
from turnwise.environments.data_rows import load_rows
from turnwise.exchange.chat_rows import link_results, order_results, read_message, read_tools
from turnwise.exchange.conversations import tool_to_json
from turnwise.exchange.sft_rows import to_chat_message

KINDS = ("text", "messages", "token_ids")


def load_documents(path: Path) -> tuple[list[tuple[str, Document]], int]:
    """Return (file and line, document) of every row that is not empty, and the number of empty ones.

    Raises DataError naming file and line with the remedy, and for a file without a document.
    """
    rows = [(f"{path}:{number}", each) for number, each in load_rows(path, read_document)]
    documents = [(place, each) for place, each in rows if each is not None]
    if not documents:
        raise DataError(f"{path}: all {len(rows)} documents are empty; add text, messages or token_ids")
    return documents, len(rows) - len(documents)


def read_document(row: Mapping[str, Any]) -> Document | None:
    """The document in a row; None if it is empty. Raises DataError saying what is wrong with it, a canary included."""
    refuse_canary(row)
    given = [kind for kind in KINDS if row.get(kind) is not None]
    if len(given) != 1:
        raise DataError(
            f"columns {', '.join(map(repr, given or row)) or 'none'}; a document has exactly one of "
            f"{', '.join(map(repr, KINDS))} (docs/synthesis.md)"
        )
    kind, value, name = given[0], row[given[0]], str(row.get("id") or "")
    if kind == "text":
        if not isinstance(value, str):
            raise DataError(f'"text" is of type {type(value).__name__}; expected a string')
        return Document(id=name, text=value) if value.strip() else None
    if not isinstance(value, list):
        raise DataError(f'"{kind}" is of type {type(value).__name__}; expected a list')
    if not value:
        return None
    if kind == "token_ids":
        if wrong := next((each for each in value if type(each) is not int or each < 0), None):
            raise DataError(f'"token_ids" holds {wrong!r}; expected whole numbers from 0')
        return Document(id=name, token_ids=tuple(value))
    for index, message in enumerate(value):
        if not isinstance(message, Mapping):
            raise DataError(f'"messages": message {index} is of type {type(message).__name__}; expected an object')
    messages = order_results(link_results([read_message(message, index) for index, message in enumerate(value)]))
    return Document(id=name, messages=tuple(messages), tools=read_tools(row.get("tools")))


def to_document_row(document: Document) -> dict[str, Any]:
    """The row that `read_document` reads back."""
    if document.text:
        return {"id": document.id, "text": document.text}
    if document.token_ids:
        return {"id": document.id, "token_ids": list(document.token_ids)}
    row: dict[str, Any] = {
        "id": document.id,
        "messages": [to_chat_message(message, as_text=False) for message in document.messages],
    }
    return row | ({"tools": [tool_to_json(tool) for tool in document.tools]} if document.tools else {})
