"""Reads the safetensors files of a Hugging Face directory: one, or several with an index. The headers list their
content, so a broken set of files is refused before a tensor is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from turnwise.core.errors import ConfigError, TurnwiseError

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d+-of-(\d+)\.safetensors")
_LFS = b"version https://git-lfs"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".distcp")
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor, as described by its file's header."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    """Name of the format in safetensors: "F32", "BF16", "F8_E4M3"."""


def list_stored(
    folder: Path, *, where: str | None = None, error: type[TurnwiseError] = ConfigError
) -> dict[str, StoredTensor]:
    """List every tensor of the folder's weights, by name; reads headers only.

    Raises `error`, whose message begins with `where` (None: the folder), if there are no safetensors, a file of the
    index is missing or lacks a tensor, or a file is truncated or not a safetensors file.
    """
    where = where or str(folder)
    stored: dict[str, StoredTensor] = {}
    by_file = _read_index(folder, where, error)
    for file, names in by_file.items():
        header = _read_header(file, where, error)
        lacking = sorted(names - header.keys())
        if lacking:
            raise error(
                f"{where}: {file.name} lacks {list_names(lacking)}, although {INDEX} lists it there; copy all files of "
                "the model again, from the same version"
            )
        stored |= header
    return stored


def read_tensors(
    folder: Path, *, where: str | None = None, error: type[TurnwiseError] = ConfigError
) -> dict[str, torch.Tensor]:
    """Read every tensor of the folder's weights to the CPU, by name. Raises as `list_stored` does."""
    stored = list_stored(folder, where=where, error=error)
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted({tensor.file for tensor in stored.values()}):
        with safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name, tensor in stored.items() if tensor.file == path}
    return tensors


def list_names(names: list[str]) -> str:
    """Format the first names of a list, and how many more there are."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _read_index(folder: Path, where: str, error: type[TurnwiseError]) -> dict[Path, set[str]]:
    """Return the files with weights, each with the tensors that the index lists for it; none are listed for a single
    file."""
    if (folder / WHOLE).is_file():
        return {folder / WHOLE: set()}
    if (folder / WHOLE).is_symlink():
        raise error(f"{where}: {WHOLE} is a link to a missing file; fetch the model again")
    if not (folder / INDEX).is_file():
        raise error(f"{where} {_describe_other_files(folder)}")
    try:
        table = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        entries = [(str(name), str(file)) for name, file in table.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise error(f"{where}: cannot read {INDEX} ({type(cause).__name__}: {cause}); copy the model again") from cause
    by_file: dict[Path, set[str]] = {}
    for name, file in entries:
        by_file.setdefault(folder / file, set()).add(name)
    missing = [path.name for path in by_file if not path.is_file()]
    if missing or not by_file:
        raise error(
            f"{where} lacks {list_names(missing) or 'every file'} of the {len(by_file)} files listed in {INDEX}; copy "
            "the missing files, or fetch the model again"
        )
    return by_file


def _describe_other_files(folder: Path) -> str:
    """Describe what a folder contains instead of weights in safetensors, with the remedy."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if shards := [name for name in names if _SHARD.fullmatch(name)]:
        total = int(shards[0].removesuffix(".safetensors").rpartition("-")[2])
        return f"has {len(shards)} of {total} shards but no {INDEX}; copy that file of the model as well"
    if others := [name for name in names if name.endswith(".safetensors")]:
        return f"has {list_names(others)} but no {WHOLE}; save the model with transformers' save_pretrained"
    if gguf := [name for name in names if name.endswith(".gguf")]:
        return f"contains a GGUF file; convert it with `turnwise models convert {folder / gguf[0]} --to DIR`"
    if pickled := [name for name in names if name.endswith(_PICKLED)]:
        return (
            f"contains only pickled weights ({list_names(pickled)}), which can run code when loaded, and no "
            "safetensors; if you trust them, load them with transformers and save_pretrained to another folder"
        )
    return f"has no weights: neither {WHOLE} nor {INDEX}; copy the model again, with its weights"


def _read_header(file: Path, where: str, error: type[TurnwiseError]) -> Mapping[str, StoredTensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            header = {}
            for name in opened.keys():  # noqa: SIM118 - not a mapping
                part = opened.get_slice(name)
                header[name] = StoredTensor(file=file, shape=tuple(part.get_shape()), dtype=str(part.get_dtype()))
            return header
    except (OSError, SafetensorError) as cause:
        if is_git_lfs_pointer(file):
            raise error(
                f"{where}: {file.name} is a Git LFS pointer without weights; run `git lfs pull` in the folder"
            ) from cause
        raise error(
            f"{where}: {file.name} is truncated or not a safetensors file ({cause}, {file.stat().st_size} bytes); copy "
            "or fetch it again"
        ) from cause


def is_git_lfs_pointer(file: Path) -> bool:
    """Whether a file is a Git LFS pointer to a file that has not been fetched."""
    with file.open("rb") as stream:
        return stream.read(len(_LFS)) == _LFS
