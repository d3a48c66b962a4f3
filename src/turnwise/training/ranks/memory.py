"""Shares tensors of the trainer's process with other processes of the machine.

torch's shared memory has no name on disk. Another process opens it as `/proc/PID/fd/NUMBER`, which the kernel allows to
processes of the same user that see ours. A random mark beside the tensors shows whether it opened ours and not a
process of the same number on another machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


class SharedMemory:
    """Tensors on the CPU that other processes may open and write while this object lives."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """The tensors must already be in shared memory (`Module.share_memory`)."""
        self._tensors = dict(tensors)
        self._mark = secrets.token_hex(16)
        self._file = os.memfd_create("turnwise-mark")
        os.write(self._file, self._mark.encode())
        weakref.finalize(self, os.close, self._file)

    def describe(self) -> dict[str, Any]:
        """Return plain data for `open_memory` and `make_tensors`."""
        return {
            "pid": os.getpid(),
            "mark": [self._file, self._mark],
            "tensors": {name: _describe(tensor) for name, tensor in self._tensors.items()},
        }


def open_memory(description: Mapping[str, Any]) -> dict[str, torch.Tensor] | None:
    """Open the described tensors themselves, by name; None if this process does not see their memory."""
    files = Path(f"/proc/{description['pid']}/fd")
    number, mark = description["mark"]
    with contextlib.suppress(OSError):
        if (files / str(number)).read_text() == mark:
            return {name: _open(files, table) for name, table in description["tensors"].items()}
    return None


def make_tensors(description: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Create uninitialised tensors of the same shapes and dtypes in this process's memory."""
    return {
        name: torch.empty(table["shape"], dtype=getattr(torch, table["dtype"]))
        for name, table in description["tensors"].items()
    }


def _describe(tensor: torch.Tensor) -> dict[str, Any]:
    storage = tensor.untyped_storage()
    # As in torch.multiprocessing; the file stays open as long as the storage.
    file, num_bytes = storage._share_fd_cpu_() if storage.nbytes() else (None, 0)
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "file": file,
        "bytes": num_bytes,
    }


def _open(files: Path, table: Mapping[str, Any]) -> torch.Tensor:
    empty = torch.empty(0, dtype=getattr(torch, table["dtype"]))
    if table["file"] is None:
        return empty.view(table["shape"])
    storage = torch.UntypedStorage.from_file(str(files / str(table["file"])), True, table["bytes"])
    assert isinstance(storage, torch.UntypedStorage)
    return empty.set_(storage, table["offset"], table["shape"], table["stride"])
