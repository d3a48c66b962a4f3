"""Packs many small files into one: a ZIP archive without compression, which any tool lists and reads.

A pack is replaced as a whole before the files in it are removed, and a separate file takes precedence over a member
with the same name: every file stays readable after a crash at any moment, and a file rewritten later replaces the
packed one."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from turnwise.core.errors import StoreError
from turnwise.store.run_folder import disk_error, write_bytes_atomic

NUM_TOGETHER = 100
"""Number of draws, or steps, per pack."""
_MARK = b"turnwise"
"""The comment that marks a pack: its members are ZIP archives too, so the end of a member in a truncated pack could be
mistaken for the pack's end."""
_BROKEN = (zipfile.BadZipFile, KeyError, EOFError, RuntimeError, NotImplementedError)


def pack_path(folder: Path, number: int, name: Callable[[int], str]) -> Path:
    """Return the path of the pack for a draw or step; it is named by the first number that it may contain."""
    return folder / f"{name(number // NUM_TOGETHER * NUM_TOGETHER)}.zip"


def pack_files(pack: Path, files: Sequence[Path]) -> None:
    """Move files into a pack, replacing members of the same name. Raises StoreError, leaving every file where it
    was."""
    members = dict(_read_all(pack))
    try:
        members |= {path.name: path.read_bytes() for path in files}
    except OSError as cause:
        raise disk_error("pack", pack, cause) from cause
    _write(pack, members)
    try:
        for path in files:
            path.unlink()
    except OSError as cause:
        raise disk_error("remove what was packed into", pack, cause) from cause


def drop_members(pack: Path, is_kept: Callable[[str], bool]) -> None:
    """Drop the members of a pack that `is_kept` refuses. Raises StoreError."""
    members = _read_all(pack)
    kept = {name: data for name, data in members.items() if is_kept(name)}
    if len(kept) < len(members):
        _write(pack, kept)


def read_member(pack: Path, name: str) -> bytes | None:
    """Return the bytes of a packed file; None if there is no such pack or member. Raises StoreError for a damaged
    pack."""
    try:
        with _open(pack) as archive:
            return archive.read(name) if name in archive.NameToInfo else None
    except FileNotFoundError:
        return None
    except (OSError, *_BROKEN) as cause:
        raise _damaged(pack, cause) from cause


def list_members(pack: Path) -> list[str]:
    """List the names of the packed files. Raises StoreError for a damaged pack."""
    try:
        with _open(pack) as archive:
            return archive.namelist()
    except (OSError, *_BROKEN) as cause:
        raise _damaged(pack, cause) from cause


def _open(pack: Path) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(pack)
    if archive.comment != _MARK:
        archive.close()
        raise zipfile.BadZipFile("its end is missing")
    return archive


def _read_all(pack: Path) -> dict[str, bytes]:
    if not pack.exists():
        return {}
    return {name: read_member(pack, name) or b"" for name in list_members(pack)}


def _write(pack: Path, members: Mapping[str, bytes]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = _MARK
        for name, data in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(name), data)  # without a time: equal groups make equal packs
    write_bytes_atomic(pack, buffer.getvalue())


def _damaged(pack: Path, cause: Exception) -> StoreError:
    return StoreError(f"cannot read {pack} ({type(cause).__name__}: {cause}); it is damaged: restore it from a copy")
