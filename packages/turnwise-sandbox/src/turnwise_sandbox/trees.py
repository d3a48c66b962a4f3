"""Trees of layers: a repository, a planted bug, pristine tests, and the edits of an episode on top.

    Tree(layers=(Path("repository"), {"package/module.py": b"...", "tests/test_module.py": None}))

This module decides, without touching the disk, which file of which layer a merged tree shows. `tree_store` keeps the
layers on disk, `tree_changes` reads what a program wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel.files import split_path

Layer = Path | Mapping[str, bytes | None]
"""A folder, or the content of files by posix path relative to the tree. None removes the file or folder below."""

MAX_LAYERS = 64
"""Maximum number of layers of a tree: the names of all must fit in one page of mount options."""
MAX_PATH_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A folder that is merged from layers, and in which a program or session works."""

    layers: tuple[Layer, ...]
    """The layers, the lowest first. A folder is copied when a sandbox first sees it: later changes in it neither harm
    open sessions nor reach new sessions of that sandbox."""
    visible: tuple[Path, ...] = ()
    """Folders that are shown read-only at their own path, for example site-packages of the repository's own
    environment. Each set of them has separate interpreters."""


def refuse_tree(tree: Tree | None, sandbox: str) -> None:
    """Raise a SandboxError that names the backend if there is a tree."""
    if tree is not None:
        raise SandboxError(
            f"{sandbox} does not support trees, because its requests carry files but no layers; run the local sandbox "
            "on that machine, or send what the program needs as files"
        )


class Entry(NamedTuple):
    """Where a merged tree finds one of its files or links."""

    layer: str
    """The layer's name in the store."""
    is_link: bool = False
    is_executable: bool = False


class Manifest:
    """The files and links of a merged tree by path. Never changed once made."""

    def __init__(self, files: Mapping[str, Entry], folders: Iterable[str] = (), *, num_bytes: int = 0) -> None:
        """`folders` may name folders that became empty; those that hold files are added. `num_bytes` is the size of
        all files of all layers."""
        self.files = files
        self.folders = {*folders, *(folder for path in files for folder in parents(path))}
        self.num_bytes = num_bytes

    def below(self, folder: str) -> list[str]:
        """The paths of files and links in a folder, at any depth."""
        return [path for path in self.files if path.startswith(folder + "/")] if folder in self.folders else []

    def lay(self, files: Mapping[str, Entry], removed: Iterable[str] = (), *, num_bytes: int = 0) -> Manifest:
        """This tree with a layer on top, which holds `files` and hides the files and folders `removed`. A file hides
        the folder of its name, a folder the file of its name."""
        hidden = {*removed, *files}
        folders = {path for path in self.folders if path not in hidden and hidden.isdisjoint(parents(path))}
        merged = dict(self.files)
        filled = {folder for path in files for folder in parents(path)}
        for path in hidden | filled:
            merged.pop(path, None)
        for path in (inner for folder in hidden for inner in self.below(folder)):
            merged.pop(path, None)
        merged.update(files)
        return Manifest(merged, folders, num_bytes=self.num_bytes + num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayer:
    """A layer of files, checked against what lies below it."""

    name: str
    """A digest of the content."""
    files: Mapping[str, bytes]
    executable: frozenset[str]
    """The files in this layer that were executable below."""
    removed: tuple[str, ...]
    """Files, links and folders below that this layer removes."""


def parents(path: str) -> Iterator[str]:
    """The folders of a path, the outermost first: "a/b/c" gives "a" and "a/b"."""
    at = path.find("/")
    while at != -1:
        yield path[:at]
        at = path.find("/", at + 1)


def check_layer(layer: Mapping[str, bytes | None], below: Manifest) -> FileLayer:
    """The layer that lies on `below`. Raises SandboxError for a path that is not relative, has `..`, goes through a
    link or a file, and for a content that is not bytes."""
    for path, content in layer.items():
        _check_path(path)
        if content is not None and not isinstance(content, bytes):
            raise SandboxError(f"tree: {path!r} is {type(content).__name__}; pass bytes, or None to remove the file")
        for folder in parents(path):
            _check_folder(folder, path, content, layer, below)
    files = {path: content for path, content in layer.items() if content is not None}
    filled = {folder for path in files for folder in parents(path)}
    hidden: set[str] = set()
    for path in (path for path, content in layer.items() if content is None):
        if path in below.files or (path in below.folders and path not in filled):
            hidden.add(path)
        elif path in below.folders:
            hidden.update(below.below(path))
    # What a file or folder of this layer covers, or lies in a folder that is removed, is hidden without further ado.
    covering, whole = {*files, *filled}, {*files, *hidden}
    removed = tuple(sorted(path for path in hidden if path not in covering and whole.isdisjoint(parents(path))))
    executable = frozenset(path for path in files if path in below.files and below.files[path].is_executable)
    digest = hashlib.sha256()
    for path in sorted(files):
        for part in (path.encode("utf-8", "surrogateescape"), files[path], b"x" if path in executable else b""):
            digest.update(len(part).to_bytes(8, "little") + part)
    for path in removed:
        digest.update(b"\0" + path.encode("utf-8", "surrogateescape"))
    return FileLayer(name=f"f{digest.hexdigest()[:30]}", files=files, executable=executable, removed=removed)


def _check_path(path: str) -> None:
    try:
        split_path(path)
        if len(path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
            raise ValueError
    except (ValueError, AttributeError):
        raise SandboxError(
            f"tree: {path!r:.100} is not a path inside the tree; use a relative one without '.', '..' or empty parts"
        ) from None


def _check_folder(
    folder: str, path: str, content: bytes | None, layer: Mapping[str, bytes | None], below: Manifest
) -> None:
    if content is not None and layer.get(folder) is not None:
        raise SandboxError(f"tree: {folder!r} is a file in the same layer as {path!r}; rename one of them")
    entry = below.files.get(folder)
    if entry is None or folder in layer:
        return
    if entry.is_link:
        raise SandboxError(f"tree: {path!r} goes through the link {folder!r} of a lower layer; use the real path")
    if content is not None:
        raise SandboxError(f"tree: {path!r} lies below {folder!r}, a file of a lower layer; set that to None first")
