"""Cuts tensors and files into pieces that fit into messages, for ranks that share neither memory nor disk with the
trainer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.core.errors import TrainingError

PIECE_BYTES = 16 << 20
"""Most bytes of a piece; small tensors share a message of about this size."""
Piece = list[Any]
"""Name, offset of the first byte, bytes `[N]` uint8."""


def cut_tensors(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[list[Piece]]:
    """Yield the pieces of each message."""
    pieces: list[Piece] = []
    count = 0
    for name, tensor in tensors:
        data = _view_bytes(tensor.detach().cpu().contiguous())
        for start in range(0, len(data), PIECE_BYTES):
            pieces.append([name, start, data[start : start + PIECE_BYTES]])
            count += len(pieces[-1][2])
            if count >= PIECE_BYTES:
                yield pieces
                pieces, count = [], 0
    if pieces:
        yield pieces


def put_pieces(pieces: Iterable[Piece], tensors: Mapping[str, torch.Tensor]) -> int:
    """Write pieces into contiguous tensors by name. Returns the number of bytes. Raises TrainingError for a piece that
    does not fit."""
    count = 0
    for name, start, data in pieces:
        if name not in tensors or start + len(data) > tensors[name].nbytes:
            raise TrainingError(f"{len(data)} bytes of {name} at {start} do not fit this model")
        _view_bytes(tensors[name].detach())[start : start + len(data)] = data
        count += len(data)
    return count


def _view_bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    """Return the bytes of a contiguous CPU tensor, in place."""
    viewed: NDArray[np.uint8] = tensor.view(-1).view(torch.uint8).numpy()
    return viewed


def cut_folder(root: Path, folder: Path) -> Iterator[Piece]:
    """Yield the pieces of all files in `folder`, named by their paths from `root`; an empty file is one piece."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, start = path.relative_to(root).as_posix(), 0
        with path.open("rb") as file:
            while (data := file.read(PIECE_BYTES)) or not start:
                yield [name, start, np.frombuffer(data, np.uint8)]
                start += max(1, len(data))


def put_file(root: Path, piece: Piece) -> None:
    """Append a piece to its file below `root`; the first piece creates the file. Raises TrainingError for a path that
    leaves `root`."""
    name, start, data = piece
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise TrainingError(f"{name!r} is not a path in a checkpoint")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if start else "wb") as file:
        file.write(memoryview(data))
