"""Keeps the layers of trees on disk, each only once for all sessions, in a folder that is removed with the sandbox."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import stat
import weakref
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel import files
from turnwise_sandbox.requests import check_path
from turnwise_sandbox.trees import MAX_LAYERS, Entry, FileLayer, Layer, Manifest, Tree, check_layer
from turnwise_sandbox.types import Program

MAX_IDLE_LAYERS = 256
"""Number of layers of files that are kept for later trees although no open tree uses them."""

WHITEOUT = stat.S_IFCHR
"""A device with number 0, by which overlayfs marks a removed file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """A tree whose layers are in the store until `TreeStore.release`."""

    names: tuple[str, ...]
    """Names of the layers' folders in the store, the lowest first."""
    manifest: Manifest
    folder: str
    """The store's folder."""
    visible: tuple[str, ...]

    @property
    def lowers(self) -> str:
        """The layers' names as overlayfs takes them: the topmost first, and none twice, since the topmost of equal
        layers hides whatever a lower one does."""
        return ":".join(dict.fromkeys(reversed(self.names)))

    def read(self, path: str) -> bytes:
        """The content of a file of the tree, or the target of a link."""
        entry = self.manifest.files[path]
        place = os.path.join(self.folder, entry.layer, path)
        if entry.is_link:
            return os.fsencode(os.readlink(place))
        with open(place, "rb") as file:
            return file.read()


def with_files(program: Program) -> Tree | None:
    """The program's tree with its files as the last layer; None without a tree."""
    if program.tree is None or not program.files:
        return program.tree
    files = {check_path(path): content for path, content in program.files.items()}
    return replace(program.tree, layers=(*program.tree.layers, files))


class TreeStore:
    """The layers of one sandbox. Serves one event loop at a time."""

    def __init__(self, folder: Path, *, has_overlay: bool) -> None:
        """Keep layers in `folder`, which exists. Without overlay, removals are not stored."""
        self._folder = folder
        self._has_overlay = has_overlay
        self._snapshots: dict[tuple[str, int, int], asyncio.Future[tuple[str, Manifest]]] = {}
        self._numbers = itertools.count()
        self._merged: weakref.WeakValueDictionary[tuple[str, ...], Manifest] = weakref.WeakValueDictionary()
        self._written: dict[str, int] = {}
        """Layers of files in the store: name to bytes. Those that are used least recently come first."""
        self._uses: Counter[str] = Counter()

    async def take(self, tree: Tree) -> StoredTree:
        """Store the tree's layers and hold them until `release`. Raises SandboxError for a tree that cannot be laid."""
        if not 0 < len(tree.layers) <= MAX_LAYERS:
            raise SandboxError(f"a tree has {len(tree.layers)} layers; use 1 to {MAX_LAYERS}")
        visible = tuple(sorted({_check_visible(path) for path in tree.visible}))
        names: list[str] = []
        manifest = Manifest({})
        try:
            for layer in tree.layers:
                name, manifest = await self._lay(layer, tuple(names), manifest)
                names.append(name)
                self._uses[name] += 1
        except BaseException as error:
            self._drop(names)
            if isinstance(error, OSError):
                raise SandboxError(f"could not store the tree: {error}") from error
            raise
        return StoredTree(names=tuple(names), manifest=manifest, folder=str(self._folder), visible=visible)

    def hold(self, tree: StoredTree) -> StoredTree:
        """Hold a tree in the store once more."""
        self._uses.update(tree.names)
        return tree

    def release(self, tree: StoredTree) -> None:
        """Release a tree. Its layers of files may then be removed."""
        self._drop(tree.names)

    def _drop(self, names: list[str] | tuple[str, ...]) -> None:
        for name in names:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name]
        idle = [name for name in self._written if name not in self._uses]
        for name in idle[: max(0, len(idle) - MAX_IDLE_LAYERS)]:
            del self._written[name]
            shutil.rmtree(self._folder / name, ignore_errors=True)

    async def _lay(self, layer: Layer, names: tuple[str, ...], below: Manifest) -> tuple[str, Manifest]:
        """The name of the stored layer, and the tree with it on top."""
        if isinstance(layer, Path):
            name, own = await self._snapshot(layer)
            if not names:
                return name, own
            merged = self._merged.get((*names, name)) or below.lay(own.files, num_bytes=own.num_bytes)
        else:
            checked = check_layer(layer, below)
            name = checked.name
            num_bytes = self._write(checked)
            merged = self._merged.get((*names, name)) or below.lay(
                {path: Entry(name, is_executable=path in checked.executable) for path in checked.files},
                checked.removed,
                num_bytes=num_bytes,
            )
        self._merged[(*names, name)] = merged
        return name, merged

    def _write(self, layer: FileLayer) -> int:
        """Write a layer of files if it is not in the store; returns its bytes."""
        num_bytes = self._written.pop(layer.name, None)
        if num_bytes is None:
            num_bytes = sum(map(len, layer.files.values()))
            place = self._folder / layer.name
            partial = self._folder / f"{layer.name}.part"
            partial.mkdir(mode=0o755)
            try:
                _write_files(partial, layer, whiteouts=self._has_overlay)
                partial.rename(place)
            except BaseException:
                shutil.rmtree(partial)
                raise
        self._written[layer.name] = num_bytes
        return num_bytes

    async def _snapshot(self, folder: Path) -> tuple[str, Manifest]:
        """The name and the files of the store's copy of a folder, made when it is first seen."""
        try:
            about = os.stat(folder)
        except OSError as error:
            raise SandboxError(f"tree: cannot read the layer {str(folder)!r}: {error.strerror}") from error
        if not stat.S_ISDIR(about.st_mode):
            raise SandboxError(f"tree: the layer {str(folder)!r} is not a folder; pass a folder, or files by path")
        key = (os.path.realpath(folder), about.st_dev, about.st_ino)
        copying = self._snapshots.get(key)
        loop = asyncio.get_running_loop()
        if copying is None or (not copying.done() and copying.get_loop() is not loop):
            place = self._folder / f"d{next(self._numbers)}"
            copying = self._snapshots[key] = loop.run_in_executor(None, copy_folder, folder, place)
        try:
            return await asyncio.shield(copying)  # others may wait for the same copy
        except SandboxError:
            self._snapshots.pop(key, None)
            raise


def copy_folder(source: Path, target: Path) -> tuple[str, Manifest]:
    """Copy a folder with its links as links; returns the name of `target` and its files. Files become 0644, or 0755 if
    their owner may execute them, folders 0755; times are kept. Raises SandboxError for a device, socket or FIFO, and
    for what cannot be read."""
    entries: dict[str, Entry] = {}
    folders: list[str] = []
    num_bytes = 0
    target.mkdir(mode=0o755)
    left = [""]
    try:
        while left:
            prefix = left.pop()
            with os.scandir(source / prefix) as found:
                for item in found:
                    path = f"{prefix}/{item.name}" if prefix else item.name
                    about = item.stat(follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        left.append(path)
                        folders.append(path)
                        os.mkdir(target / path, 0o755)
                    elif stat.S_ISLNK(about.st_mode):
                        os.symlink(os.readlink(source / path), target / path)
                        entries[path] = Entry(target.name, is_link=True)
                    elif stat.S_ISREG(about.st_mode):
                        executable = bool(about.st_mode & stat.S_IXUSR)
                        shutil.copyfile(source / path, target / path, follow_symlinks=False)
                        os.chmod(target / path, 0o755 if executable else 0o644)
                        os.utime(target / path, ns=(about.st_mtime_ns, about.st_mtime_ns))
                        entries[path] = Entry(target.name, is_executable=executable)
                        num_bytes += about.st_size
                    else:
                        raise SandboxError(
                            f"tree: {path!r} in the layer {str(source)!r} is a device, socket or FIFO; remove it"
                        )
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError):
            raise SandboxError(f"tree: cannot copy the layer {str(source)!r}: {error}") from error
        raise
    return target.name, Manifest(entries, folders, num_bytes=num_bytes)


def _write_files(folder: Path, layer: FileLayer, *, whiteouts: bool) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path, content in layer.files.items():
            files.write_file(fd, path, content, mode=0o755 if path in layer.executable else 0o644)
        for path in layer.removed if whiteouts else ():
            os.makedirs(folder / os.path.dirname(path), mode=0o755, exist_ok=True)
            os.mknod(folder / path, WHITEOUT, os.makedev(0, 0))
    finally:
        os.close(fd)


def _check_visible(path: Path) -> str:
    shown = os.path.abspath(path)
    if not os.path.isdir(shown):
        raise SandboxError(f"tree: the visible folder {str(path)!r} is not a folder; name one that exists")
    return shown
