"""Trees for backends that start an ordinary interpreter elsewhere: sent as an archive, and read back as one.

Such a backend merges the layers here, unpacks the result where the program works, and compares what is there after the
program with what was sent. It has no shared layers: every program carries its whole tree.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel.files import split_path
from turnwise_sandbox.tree_store import StoredTree, TreeStore, with_files
from turnwise_sandbox.types import Program

_PAGE_BYTES = 4096
_TIME = 946_684_800
"""Modification time of every file, in seconds since 1970: 2000-01-01, because zip archives start with the year 1980."""


class TreeShelf:
    """The trees that a backend sends, in a temporary folder from the first one to `close`."""

    def __init__(self, backend: str, remedy: str) -> None:
        """`backend` names it in messages; `remedy` says how its programs can get what `Tree.visible` would show."""
        self._backend = backend
        self._remedy = remedy
        self._folder: Path | None = None
        self._store: TreeStore | None = None

    @contextlib.asynccontextmanager
    async def take(self, program: Program) -> AsyncIterator[StoredTree | None]:
        """The program's tree, with its files as the last layer; None without a tree.

        Raises SandboxError for a tree that cannot be laid, and for one with `visible` folders.
        """
        tree = with_files(program)
        if tree is None:
            yield None
            return
        if tree.visible:
            raise SandboxError(f"{self._backend} cannot show folders of this machine; {self._remedy}")
        if self._store is None:
            self._folder = Path(tempfile.mkdtemp(prefix="turnwise-trees-"))
            self._store = TreeStore(self._folder, has_overlay=False)
        store = self._store
        stored = await store.take(tree)
        try:
            yield stored
        finally:
            store.release(stored)

    def close(self) -> None:
        """Remove the folder. A second call does nothing."""
        folder, self._folder, self._store = self._folder, None, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def pack_tree(tree: StoredTree, archive: tarfile.TarFile, folder: str) -> None:
    """Add the tree's folders, files and links to an archive, below `folder`, which it adds too."""
    for path in ("", *sorted(tree.manifest.folders)):
        info = tarfile.TarInfo(f"{folder}/{path}".rstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
    for path, entry in tree.manifest.files.items():
        info = tarfile.TarInfo(f"{folder}/{path}")
        info.mtime = _TIME
        content = tree.read(path)
        if entry.is_link:
            info.type, info.linkname = tarfile.SYMTYPE, content.decode("utf-8", "surrogateescape")
            archive.addfile(info)
        else:
            info.size, info.mode = len(content), 0o755 if entry.is_executable else 0o644
            archive.addfile(info, io.BytesIO(content))


def count_bytes(tree: StoredTree) -> int:
    """Maximum bytes that the merged tree takes on a file system with 4 KiB pages."""
    return tree.manifest.num_bytes + _PAGE_BYTES * (1 + len(tree.manifest.files) + len(tree.manifest.folders))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The contents of the program's folder after its end."""

    files: Mapping[str, bytes]
    """Path to content of each plain file."""
    links: Mapping[str, str]
    """Path to target of each symbolic link."""


def read_found(archive: tarfile.TarFile, folder: str) -> Found:
    """The plain files and links below `folder` in an untrusted archive. Names that leave it are left out.

    Raises the errors of `tarfile` for a damaged archive.
    """
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for member in archive:
        path = _inner_path(member.name, folder)
        if path is None:
            continue
        if member.issym():
            links[path] = member.linkname
        elif member.isreg() and (file := archive.extractfile(member)) is not None:
            files[path] = file.read()
        elif member.islnk() and (other := _inner_path(member.linkname, folder)) in files:
            files[path] = files[str(other)]
    return Found(files=files, links=links)


def find_changes(found: Found, tree: StoredTree, *, max_bytes: int, max_files: int) -> dict[str, bytes | None] | None:
    """What a program wrote, as in `Execution.changes`; None if that is more than `max_bytes` or `max_files`."""
    changes: dict[str, bytes | None] = {}
    for path, content in found.files.items():
        entry = tree.manifest.files.get(path)
        if entry is None or entry.is_link or tree.read(path) != content:
            changes[path] = content
    if len(changes) > max_files or sum(len(content or b"") for content in changes.values()) > max_bytes:
        return None
    for path, entry in tree.manifest.files.items():
        is_kept_link = entry.is_link and found.links.get(path, "").encode("utf-8", "surrogateescape") == tree.read(path)
        if path not in found.files and not is_kept_link:
            changes[path] = None
    return dict(sorted(changes.items()))


def _inner_path(name: str, folder: str) -> str | None:
    """The path below `folder`; None for a name that is no plain path in it."""
    inside, _, path = name.partition("/")
    try:
        split_path(path)
    except ValueError:
        return None
    return path if inside == folder else None
