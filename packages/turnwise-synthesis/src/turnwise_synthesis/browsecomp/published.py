"""The layout of BrowseComp's published file, for those who have it: a CSV with the columns problem, answer,
problem_topic and canary, of which problem and answer are encrypted so that no crawler reads them.

A text is encoded in UTF-8, combined by XOR with a key and written in base64. The key is the SHA-256 digest of the row's
canary, repeated to the text's length. It hides, it does not protect: the canary stands beside it.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.environments.published_rows import is_blank, shorten

COLUMNS = ("problem", "answer", "problem_topic", "canary")
CANARY = (
    "These questions are for evaluation and must not be in training data. "
    "canary GUID turnwise:5b0f6c1e-7a53-4d0e-9a52-1f6f3f0f8e21"
)
"""The canary of questions that are written here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One decrypted row."""

    question: str
    answer: str
    topic: str
    canary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """The decrypted rows of a file."""

    rows: Sequence[PublishedRow]
    copies: int
    """Rows that ask what an earlier row asks; they are left out."""


def encrypt(text: str, canary: str) -> str:
    """Return the text in the published encryption. Raises DataError for an empty canary."""
    return base64.b64encode(_combine(text.encode("utf-8"), canary)).decode("ascii")


def decrypt(text: str, canary: str) -> str:
    """Return the text that `encrypt` was given. Raises DataError saying what is wrong: no canary, no base64, or bytes
    that are no text, which is what another canary gives."""
    try:
        encrypted = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{shorten(text)} is not base64 ({error})") from None
    try:
        return _combine(encrypted, canary).decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(
            "the decrypted bytes are no text; the row's canary is another than it was encrypted with"
        ) from None


def read_published(path: Path) -> PublishedFile:
    """Decrypt the rows of a file. Raises DataError naming the file, and for a bad row its line and column."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise DataError(f"{path}: column {missing[0]!r} is missing; expected {', '.join(COLUMNS)}")
    rows: dict[str, PublishedRow] = {}
    count = 0
    for line, row in _read_rows(path, reader):
        try:
            found = _decrypt_row(row)
        except DataError as error:
            raise DataError(f"{path}:{line}: {error}") from None
        count += 1
        rows.setdefault(" ".join(found.question.split()), found)
    if not rows:
        raise DataError(f"{path}: no rows; expected at least one below the header")
    return PublishedFile(rows=tuple(rows.values()), copies=count - len(rows))


def write_published(rows: Sequence[PublishedRow]) -> str:
    """Return the CSV of these rows, encrypted with their canaries. Raises DataError for a row without one."""
    written = io.StringIO(newline="")
    writer = csv.writer(written)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([encrypt(row.question, row.canary), encrypt(row.answer, row.canary), row.topic, row.canary])
    return written.getvalue()


def to_question_row(row: PublishedRow) -> dict[str, Any]:
    """Return the row in the layout of questions of `search_qa`, mode "files", with its canary: a file of such rows is
    for `heldout_path`, and refused in `train_path`."""
    return {"question": row.question, "answers": [row.answer], "kind": row.topic, "canary": row.canary}


def _read_rows(path: Path, reader: csv.DictReader[str]) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{path}:{reader.reader.line_num}: {error}") from None
        yield reader.line_num, row


def _decrypt_row(row: Mapping[str, str | None]) -> PublishedRow:
    canary, topic = row["canary"], row["problem_topic"]
    if canary is None or is_blank(canary):
        raise DataError("column 'canary' is empty, so the row cannot be decrypted")
    texts = []
    for name in ("problem", "answer"):
        value = row[name]
        if value is None or is_blank(value):
            raise DataError(f"column {name!r} is empty")
        try:
            text = decrypt(value, canary)
        except DataError as error:
            raise DataError(f"column {name!r}: {error}") from None
        if is_blank(text):
            raise DataError(f"column {name!r} is blank when decrypted")
        texts.append(text)
    return PublishedRow(question=texts[0], answer=texts[1], topic=(topic or "").strip() or "browsecomp", canary=canary)


def _combine(data: bytes, canary: str) -> bytes:
    if not canary:
        raise DataError("the canary is empty; the key is derived from it")
    return bytes(
        byte ^ key for byte, key in zip(data, cycle(hashlib.sha256(canary.encode("utf-8")).digest()), strict=False)
    )
