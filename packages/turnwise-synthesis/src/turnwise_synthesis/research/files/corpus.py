"""The user's own corpus: texts of a folder or a file, divided into numbered passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.errors import DataError
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.files import load_corpus

ENDINGS = (".txt", ".md")
NUM_NAMED = 3
"""Most texts named in a note; further ones are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCorpus:
    """All passages of a corpus."""

    path: Path
    passages: tuple[Passage, ...]
    """With ids from 1 to their number, as a report cites them."""
    origins: tuple[str, ...]
    """Where each passage comes from: the file, or the id of the row; a number behind it where a text was divided."""
    notes: tuple[str, ...]
    """What was left out or divided, one line each."""


def load_own_corpus(path: Path, *, passage_words: int, max_bad_rows: float = 0.0) -> OwnCorpus:
    """Load a folder of .txt and .md files, or a file of rows with id, title and text.

    Empty texts of a folder and texts that occur twice are left out and counted; a text with more than `passage_words`
    words is divided. Raises DataError if nothing is left, a file is not UTF-8, or as `load_corpus` does."""
    notes: list[str] = []
    if path.is_dir():
        texts = list(_read_folder(path))
        empty = [origin for origin, _, text in texts if not text.strip()]
        notes += _describe(empty, "empty and left out")
        texts = [each for each in texts if each[2].strip()]
    else:
        file = load_corpus(path, max_bad_share=max_bad_rows)
        notes += [file.note] if file.note else []
        texts = [(row.id, row.title, row.text) for row in file.rows]
    seen: dict[str, str] = {}
    copies = [origin for origin, _, text in texts if seen.setdefault(" ".join(text.split()), origin) != origin]
    notes += _describe(copies, "copies of an earlier text and left out")
    passages: list[Passage] = []
    origins: list[str] = []
    divided: list[str] = []
    for origin, title, text in (each for each in texts if each[0] not in set(copies)):
        words = text.split()
        pieces = [" ".join(words[at : at + passage_words]) for at in range(0, len(words), passage_words)]
        divided += [origin] if len(pieces) > 1 else []
        for number, piece in enumerate(pieces, 1):
            passages.append(Passage(str(len(passages) + 1), title, piece))
            origins.append(f"{origin}, part {number}" if len(pieces) > 1 else origin)
    notes += _describe(divided, f"divided into passages of at most {passage_words} words")
    if not passages:
        raise DataError(f"{path} has no text to search; give a folder with .txt or .md files, or a file of passages")
    return OwnCorpus(path=path, passages=tuple(passages), origins=tuple(origins), notes=tuple(notes))


def _read_folder(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield origin, title and text of every file, in the order of their names."""
    for file in sorted(each for each in folder.rglob("*") if each.suffix in ENDINGS and each.is_file()):
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as cause:
            raise DataError(f"{file} is not UTF-8; convert it or take it out of the folder") from cause
        yield str(file.relative_to(folder)), file.stem.replace("_", " "), text


def _describe(origins: Sequence[str], what: str) -> list[str]:
    if not origins:
        return []
    named = ", ".join(origins[:NUM_NAMED]) + (", ..." if len(origins) > NUM_NAMED else "")
    return [f"{len(origins):,} {'text is' if len(origins) == 1 else 'texts are'} {what}: {named}"]
