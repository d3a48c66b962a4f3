"""Reads what a program wrote into its tree, from outside and without following its links, and lays out copies.

With overlay the folder of edits holds exactly the changed files; a copy is compared with the tree as a whole. Only
plain files are changes. A link or special file that a program made is left out; one in place of a file of the tree
counts as the removal of that file."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel import files
from turnwise_sandbox.tree_store import StoredTree

_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")


class ChangesTooLarge(SandboxError):
    """Raised if the changed files hold more than the limits allow, for example because they are sparse."""


def read_changes(
    folder: int, tree: StoredTree, *, is_overlay: bool, max_bytes: int, max_files: int
) -> dict[str, bytes | None]:
    """Path to content of each file whose content is not the tree's; None for a file of the tree that is gone.

    `folder` is open at the edits of an overlay, or at a copy of the tree. Raises ChangesTooLarge for files with more
    than `max_bytes` together, or more than `max_files` beside those of a copy; SandboxError if they cannot be read."""
    manifest = tree.manifest
    changes: dict[str, bytes | None] = {}
    seen: set[str] = set()
    hiding: set[str] = set()
    num_left = max_bytes
    try:
        max_entries = max_files + (0 if is_overlay else len(manifest.files))
        # Closed at once also where an error, and with it this frame, is kept: `folder` is then read from its beginning
        # again, which it would not be while the walk is suspended in it.
        with contextlib.closing(files.walk(folder, max_files=max_entries)) as entries:
            for path, about in entries:
                if stat.S_ISDIR(about.st_mode):
                    covers = is_overlay and path in manifest.folders and _is_opaque(folder, path)
                    if covers or path in manifest.files:
                        hiding.add(path)
                    continue
                entry = manifest.files.get(path)
                if not stat.S_ISREG(about.st_mode):
                    kept = entry is not None and entry.is_link and _link_target(folder, path) == tree.read(path)
                    (seen if kept else hiding).add(path)
                    continue
                content = _read(folder, path, num_left if entry is None or is_overlay else max_bytes + about.st_size)
                if content is None:
                    hiding.add(path)
                    continue
                seen.add(path)
                hiding.add(path)  # a folder with this name is gone
                if entry is None or entry.is_link or tree.read(path) != content:
                    changes[path] = content
                    num_left -= len(content)
                    if num_left < 0:
                        raise OSError(errno.EFBIG, "too many bytes")
    except OSError as error:
        if error.errno not in (errno.EFBIG, errno.E2BIG):
            raise SandboxError(f"cannot read the changes of the tree: {error}") from error
        raise ChangesTooLarge(
            f"the changes of the tree have more than {max_bytes} bytes or {max_files} files; write less, or raise "
            "disk_bytes and num_files"
        ) from error
    gone = set(hiding) if is_overlay else set(manifest.files)
    gone.update(inner for path in hiding for inner in manifest.below(path))
    changes.update((path, None) for path in gone if path in manifest.files and path not in seen)
    return dict(sorted(changes.items()))


def lay_copy(folder: int, tree: StoredTree, owner: tuple[int, int] | None) -> None:
    """Write all files of the tree into an empty folder, where overlay is refused. Raises SandboxError."""
    try:
        for path in sorted(tree.manifest.folders):
            os.close(files.make_folder(folder, path, owner=owner))
        for path, entry in tree.manifest.files.items():
            content = tree.read(path)
            if entry.is_link:
                files.create_link(folder, path, content, owner=owner)
            else:
                mode = 0o755 if entry.is_executable else 0o644
                files.write_file(folder, path, content, mode=mode, owner=owner)
    except OSError as error:
        raise SandboxError(f"could not copy the tree: {error}") from error


def _read(folder: int, path: str, max_bytes: int) -> bytes | None:
    """The content; None if the file went away or may not be read. Raises OSError for more than `max_bytes`."""
    with contextlib.suppress(FileNotFoundError):
        return files.read_file(folder, path, max_bytes=max_bytes)
    return None


def _link_target(folder: int, path: str) -> bytes | None:
    try:
        return files.read_link(folder, path)
    except OSError:
        return None


def _is_opaque(folder: int, path: str) -> bool:
    try:
        fd = files.open_folder(folder, path)
    except OSError:
        return False
    try:
        return any(_attribute(fd, name) == b"y" for name in _OPAQUE)
    finally:
        os.close(fd)


def _attribute(fd: int, name: str) -> bytes:
    try:
        return os.getxattr(fd, name)
    except OSError:
        return b""
