"""A user's theorems for Coq: rows of JSONL, or a folder of `.v` files with imports and statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from turnwise.core.errors import DataError
from turnwise.core.protocols import Split
from turnwise.environments.file_splits import DataFile, FileSplits, check_path, describe_copies, load_splits
from turnwise_worlds.coq.prover import CoqProver
from turnwise_worlds.proving.prover import Theorem
from turnwise_worlds.proving.theorem_files import read_theorem

_COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)
_SENTENCE = re.compile(r"(.+?\.)(?:\s|$)", re.DOTALL)
_THEOREM = re.compile(r"(?:Theorem|Lemma|Fact|Remark|Corollary|Proposition|Example)\s+(\S+)\s*(.*)\.", re.DOTALL)
_IMPORT = re.compile(r"(?:From\s+\S+\s+)?Require\s|Import\s|Export\s|Open\s+Scope\s")
_END = re.compile(r"\.(?:\s|$)")
_NO_PROOF = ("Proof.", "Admitted.", "Abort.")


def load_theorems(paths: dict[Split, str], prover: CoqProver, seed: int, *, max_bad_rows: float) -> FileSplits[Theorem]:
    """Load the theorems of each split, from files of rows or from folders; each is stated to Coq once.

    Raises ConfigError for a missing path, DataError naming file and line of what cannot be read or Coq refuses.
    """

    def convert(row: dict[str, object]) -> Theorem:
        theorem = read_theorem(row)
        _check_sentences(theorem)
        prover.start(theorem)
        return theorem

    for split, path in paths.items():
        check_path(f"{split}_path", path)
    if not any(Path(path).is_dir() for path in paths.values()):
        return load_splits(paths, convert, seed, max_bad_rows=max_bad_rows)
    rows: dict[Split, list[Theorem]] = {}
    places: dict[Split, list[str]] = {}
    files: list[DataFile] = []
    for split, path in paths.items():
        if not Path(path).is_dir():
            raise DataError(f"{split}_path={path!r} is a file and the other is a folder; use two of the same sort")
        rows[split], places[split] = [], []
        for file in sorted(Path(path).glob("*.v")):
            found = list(read_file(file))
            files.append(DataFile(path=file, num_rows=len(found)))
            for line, theorem in found:
                _state(prover, theorem, f"{file}:{line}")
                rows[split].append(theorem)
                places[split].append(f"{file}:{line}")
        if not rows[split]:
            raise DataError(f"{split}_path={path!r} has no theorem in a file *.v")
    find = {split: each.__getitem__ for split, each in places.items()}
    return FileSplits(rows, seed, places=find, notes=describe_copies(rows, find), files=files)


def read_file(path: Path) -> Iterator[tuple[int, Theorem]]:
    """Yield the theorems of a file with their lines. Raises DataError for anything but imports, statements and
    `Proof. Admitted.` or `Abort.`, naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"{path} cannot be read: {cause}") from None
    text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    imports: list[str] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        sentence = _SENTENCE.match(text, at)
        line = text.count("\n", 0, at) + 1
        if sentence is None:
            raise DataError(f"{path}:{line}: the last sentence has no full stop")
        said = " ".join(sentence[1].split())
        theorem = _THEOREM.fullmatch(said)
        if theorem is not None:
            yield line, read_theorem({"name": theorem[1], "statement": theorem[2], "imports": list(imports)})
        elif _IMPORT.match(said):
            imports.append(said)
        elif said not in _NO_PROOF:
            raise DataError(f"{path}:{line}: {said[:60]!r} is neither an import nor a statement; leave it out")
        at = sentence.end()
        at += len(text[at:]) - len(text[at:].lstrip())


def _check_sentences(theorem: Theorem) -> None:
    """Raise DataError if a statement or an import is not one sentence."""
    if _END.search(theorem.statement):
        raise DataError(f'"statement" must be one sentence without its full stop, not {theorem.statement[:60]!r}')
    for sentence in theorem.imports:
        if not sentence.endswith(".") or _END.search(sentence[:-1]):
            raise DataError(f'"imports" must be sentences with a full stop each, not {sentence[:60]!r}')


def _state(prover: CoqProver, theorem: Theorem, place: str) -> None:
    try:
        prover.start(theorem)
    except DataError as cause:
        raise DataError(f"{place}: {cause}") from None
