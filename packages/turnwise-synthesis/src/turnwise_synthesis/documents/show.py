"""Documents as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from turnwise.core.documents import Document
from turnwise.core.errors import DataError
from turnwise.core.seeds import rng
from turnwise.environments.data_rows import read_rows
from turnwise.exchange.document_rows import read_document
from turnwise.reporting.transcript import clean_for_terminal


def draw_documents(path: Path, *, kind: str, count: int, seed: int) -> Iterator[str]:
    """Yield the lines of `count` documents of each kind, or of one, drawn at random in the order of the file; of a
    ledger, what was dropped and why. Raises DataError for a file of another form, and where nothing is of the kind."""
    by_kind: dict[str, list[str]] = {}
    for number, row in read_rows(path):
        if "reason" in row and "item" in row:
            name, text = str(row.get("kind")), f"{row['reason']}: {row['item']}: {row.get('text', '')}"
        else:
            try:
                document = read_document(row)
            except DataError as problem:
                raise DataError(f"{path}:{number}: {problem}") from None
            if document is None:
                continue
            name, text = document.id.partition("/")[0], "\n".join(_draw(document))
        if not kind or name == kind:
            by_kind.setdefault(name, []).append(text)
    if not by_kind:
        raise DataError(f"{path}: nothing {'of the kind ' + repr(kind) if kind else 'to show'}")
    for name, texts in by_kind.items():
        chosen = sorted(rng(seed, "show", name).sample(range(len(texts)), min(count, len(texts))))
        yield f"# {name}: {len(chosen)} of {len(texts)}"
        for index in chosen:
            yield clean_for_terminal(texts[index])
            yield ""


def _draw(document: Document) -> Iterator[str]:
    yield f"[{document.id}]"
    if document.text:
        yield document.text
    elif document.token_ids:
        yield " ".join(map(str, document.token_ids))
    for message in document.messages:
        if message.reasoning:
            yield f"{message.role} (thought): {message.reasoning}"
        if message.text.strip():
            yield f"{message.role}: {message.text.strip()}"
        for call in message.tool_calls:
            yield f"{message.role} calls {call.name} {call.arguments}"
