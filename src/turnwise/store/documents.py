"""The run's record of continual pre-training: which documents trained, in which order.

cpt/documents.jsonl     one line per document: index, id, digest of its token ids, tokens
cpt/steps.jsonl         one line per step, before it trains: pass, pieces of documents, trained tokens, digest
cpt/checkpoints/        checkpoints inside the phase, until the first of RL is there
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.store.run_folder import append_line, read_lines, to_line, write_bytes_atomic

FOLDER = "cpt"
DOCUMENTS, STEPS = "documents.jsonl", "steps.jsonl"


def phase_folder(run: Path) -> Path:
    """Return the folder of the phase in a run folder; its checkpoints are named as those of a run are."""
    return run / FOLDER


def digest_tokens(token_ids: Iterable[NDArray[Any]]) -> str:
    """Return 16 hexadecimal digits of SHA-256 over arrays of token ids, in order; lengths are part of it."""
    digest = hashlib.sha256()
    for ids in token_ids:
        digest.update(len(ids).to_bytes(8, "little") + np.ascontiguousarray(ids, dtype="<i8").tobytes())
    return digest.hexdigest()[:16]


def write_documents(run: Path, documents: Sequence[tuple[str, NDArray[Any]]]) -> None:
    """Record the documents, as (id, token ids). Raises StoreError."""
    rows = (
        {"index": index, "id": name, "digest": digest_tokens([ids]), "tokens": len(ids)}
        for index, (name, ids) in enumerate(documents)
    )
    write_bytes_atomic(phase_folder(run) / DOCUMENTS, b"".join(map(to_line, rows)))


def append_step(run: Path, row: Mapping[str, Any]) -> None:
    """Record a step that is about to train. Raises StoreError."""
    append_line(phase_folder(run) / STEPS, row)


def read_documents(run: Path) -> list[dict[str, Any]]:
    """Return the lines about documents; none for a run without the phase. Raises StoreError for a damaged one."""
    return list(read_lines(phase_folder(run) / DOCUMENTS))


def read_steps(run: Path) -> list[dict[str, Any]]:
    """Return the lines about steps. Raises StoreError for a damaged one."""
    return list(read_lines(phase_folder(run) / STEPS))


def forget_steps(run: Path, *, after: int) -> None:
    """Forget the steps after step `after`, which are about to run again. Raises StoreError."""
    kept = [row for row in read_steps(run) if row["step"] <= after]
    write_bytes_atomic(phase_folder(run) / STEPS, b"".join(map(to_line, kept)))


def forget_checkpoints(run: Path) -> None:
    """Delete the phase's own checkpoints: RL's first one has come after them."""
    shutil.rmtree(phase_folder(run) / "checkpoints", ignore_errors=True)
