"""Access to files below a folder that untrusted code can write: follows no link, leaves no folder, never blocks.

Paths are relative, without `.` or `..`. openat2(2) confines them on Linux 5.6 and later; on older kernels each part is
opened separately without following links. Only plain files are opened: FIFOs, devices and sockets are refused, because
they could block. The caller must bound the size of what it reads."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import struct
from collections.abc import Generator

from turnwise_sandbox.kernel.syscalls import AT_SYMLINK_NOFOLLOW, syscall

_RESOLVE = 0x02 | 0x04 | 0x08
"""RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN_FLAGS = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EIO)
"""Errors that say nothing about the file, which must not count as missing."""
_NAMES_AT_A_TIME = 4096
_MAX_LISTED_DEPTH = 64
_CHUNK_BYTES = 1 << 20


def split_path(path: str) -> list[str]:
    """The parts of a relative path. Raises ValueError if the path is absolute or empty, or holds `.`, `..`, NUL or a
    part over 255 bytes."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > 255 for part in parts):
        raise ValueError(f"path {path!r}: use a relative path without empty, '.' or '..' parts, each at most 255 bytes")
    return parts


def open_folder(dir_fd: int, path: str) -> int:
    """Open a folder below `dir_fd` for reading. Raises ValueError like `split_path`, OSError (ELOOP or ENOTDIR for a
    link)."""
    return _open_beneath(dir_fd, split_path(path), _FOLDER_FLAGS, 0)


def open_file(dir_fd: int, path: str) -> int | None:
    """Open a plain file below `dir_fd` for reading; None if there is no such plain file or it may not be read.

    The descriptor is non-blocking. Raises ValueError like `split_path`, OSError where descriptors or memory run out.
    """
    try:
        fd = _open_beneath(dir_fd, split_path(path), os.O_RDONLY | _PLAIN_FLAGS, 0)
    except OSError as error:
        if error.errno in _TRANSIENT:
            raise
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def create_file(dir_fd: int, path: str, *, mode: int = 0o644, owner: tuple[int, int] | None = None) -> int:
    """Open a plain, empty file below `dir_fd` for writing. Makes its folders, and empties a plain file that exists.

    `owner` is the (uid, gid) of new files and folders; None means the caller's. Raises ValueError like `split_path`,
    and OSError: EINVAL for a path to something other than a plain file, ELOOP or ENOTDIR for a path through a link,
    ENOSPC and similar ones."""
    *folders, name = split_path(path)
    parent = os.dup(dir_fd)
    try:
        for folder in folders:
            parent = _step_into(parent, folder, owner)
        try:
            fd = _open_beneath(parent, [name], os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN_FLAGS, mode)
        except FileExistsError:
            fd = _open_existing(parent, name, path)
            os.ftruncate(fd, 0)
        else:
            if owner is not None:
                os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
        return fd
    finally:
        os.close(parent)


def write_file(
    dir_fd: int,
    path: str,
    content: bytes,
    *,
    max_bytes: int | None = None,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
) -> None:
    """Write a file, made as by `create_file`. Raises OSError(EFBIG), before it makes anything, for more than
    `max_bytes`; None means no bound."""
    if max_bytes is not None and len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"{len(content)} bytes are more than the {max_bytes} allowed", path)
    fd = create_file(dir_fd, path, mode=mode, owner=owner)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)


def read_file(dir_fd: int, path: str, *, max_bytes: int) -> bytes:
    """The content of a plain file. Raises FileNotFoundError if there is none, OSError(EFBIG) if it is longer than
    `max_bytes`."""
    fd = open_file(dir_fd, path)
    if fd is None:
        raise FileNotFoundError(errno.ENOENT, "there is no readable regular file of this name", path)
    try:
        chunks: list[bytes] = []
        num_left = max_bytes + 1
        while num_left and (chunk := os.read(fd, min(num_left, _CHUNK_BYTES))):
            chunks.append(chunk)
            num_left -= len(chunk)
    finally:
        os.close(fd)
    if not num_left:
        raise OSError(errno.EFBIG, f"longer than the {max_bytes} bytes allowed", path)
    return b"".join(chunks)


def make_folder(dir_fd: int, path: str, *, owner: tuple[int, int] | None = None) -> int:
    """Make a folder and those above it below `dir_fd`, and open it. `owner` and errors as for `create_file`."""
    folder = os.dup(dir_fd)
    try:
        for name in split_path(path):
            folder = _step_into(folder, name, owner)
    except BaseException:
        os.close(folder)
        raise
    return folder


def create_link(dir_fd: int, path: str, target: bytes, *, owner: tuple[int, int] | None = None) -> None:
    """Make a symbolic link below `dir_fd`, and its folders. `owner` and errors as for `create_file`, and OSError
    (EEXIST)."""
    folder, _, name = path.rpartition("/")
    parent = make_folder(dir_fd, folder, owner=owner) if folder else os.dup(dir_fd)
    try:
        os.symlink(target, split_path(name)[0], dir_fd=parent)
        if owner is not None:
            os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)


def read_link(dir_fd: int, path: str) -> bytes:
    """The target of a symbolic link below `dir_fd`. Raises OSError for anything else, ValueError like `split_path`."""
    *folders, name = split_path(path)
    parent = _open_beneath(dir_fd, folders, _FOLDER_FLAGS, 0) if folders else os.dup(dir_fd)
    try:
        return os.fsencode(os.readlink(name, dir_fd=parent))
    finally:
        os.close(parent)


def walk(dir_fd: int, *, max_files: int) -> Generator[tuple[str, os.stat_result], None, None]:
    """Path and status of everything below `dir_fd`, each folder before what it holds. Close it where it is not read to
    its end: until then another walk of `dir_fd` begins where this one is. Follows no link, and leaves out
    unreadable folders and what lies below more than 64 folders. Raises OSError(E2BIG) for more than `max_files`, and
    where descriptors or memory run out."""
    folders = [""]
    num_entries = 0
    while folders:
        prefix = folders.pop()
        try:
            fd = os.dup(dir_fd) if not prefix else _open_beneath(dir_fd, prefix.split("/"), _FOLDER_FLAGS, 0)
        except OSError as error:
            if error.errno in _TRANSIENT:
                raise
            continue  # removed, replaced or unreadable since it was listed
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    num_entries += 1
                    if num_entries > max_files:
                        raise OSError(errno.E2BIG, f"more than {max_files} files and folders")
                    path = f"{prefix}/{entry.name}" if prefix else entry.name
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except OSError:  # removed since it was listed
                        continue
                    if stat.S_ISDIR(about.st_mode) and path.count("/") < _MAX_LISTED_DEPTH:
                        folders.append(path)
                    yield path, about
        finally:
            os.close(fd)


def list_files(dir_fd: int, *, max_files: int) -> list[tuple[str, int]]:
    """Path and size of every plain file below `dir_fd`, sorted. Leaves out links and devices, and what `walk` does.
    Raises OSError(E2BIG) for more than `max_files` entries of any kind."""
    entries = walk(dir_fd, max_files=max_files)
    return sorted((path, about.st_size) for path, about in entries if stat.S_ISREG(about.st_mode))


def remove_tree(dir_fd: int) -> None:
    """Empty the folder. `dir_fd` must be open for reading, not with O_PATH.

    Takes two descriptors and constant memory for any depth and number of files: the folders in a folder are moved up
    before it is removed. Folders without permissions get them. Call it when no process can write to the folder. Raises
    OSError for what cannot be removed."""
    serial = itertools.count()
    prefix = f".removing-{os.getpid()}-{os.getrandom(4).hex()}-"
    while names := _some_names(dir_fd):
        for name in names:
            _remove_entry(dir_fd, name, prefix, serial)


def _remove_entry(top: int, name: str, prefix: str, serial: itertools.count[int]) -> None:
    if _unlink(top, name):
        return
    folder = _open_any_folder(top, name)
    try:
        while children := _some_names(folder):
            for child in children:
                if not _unlink(folder, child):
                    _move_up(folder, child, top, f"{prefix}{next(serial)}")
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _unlink(dir_fd: int, name: str) -> bool:
    """Remove a file or an empty folder; False if it is a folder that is not empty."""
    try:
        os.unlink(name, dir_fd=dir_fd)
        return True
    except IsADirectoryError:
        pass
    except PermissionError:  # POSIX's answer for a folder; or `dir_fd` is not writable
        os.fchmod(dir_fd, 0o700)
        if not stat.S_ISDIR(os.lstat(name, dir_fd=dir_fd).st_mode):
            os.unlink(name, dir_fd=dir_fd)
            return True
    try:
        os.rmdir(name, dir_fd=dir_fd)
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False


def _move_up(folder: int, child: str, top: int, name: str) -> None:
    try:
        os.rename(child, name, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:  # moving a folder changes its `..`, so it must be writable
        os.fchmod(top, 0o700)
        _make_accessible(folder, child)
        os.rename(child, name, src_dir_fd=folder, dst_dir_fd=top)


def _open_any_folder(dir_fd: int, name: str) -> int:
    try:
        fd = os.open(name, _FOLDER_FLAGS, dir_fd=dir_fd)
    except PermissionError:
        _make_accessible(dir_fd, name)
        fd = os.open(name, _FOLDER_FLAGS, dir_fd=dir_fd)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
        os.fchmod(fd, 0o700)
    return fd


def _make_accessible(dir_fd: int, name: str) -> None:
    try:
        syscall("fchmodat2", dir_fd, os.fsencode(name), 0o700, AT_SYMLINK_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        # Follows links, but the caller has no privileges over other users' files.
        os.chmod(name, 0o700, dir_fd=dir_fd)


def _some_names(dir_fd: int) -> list[str]:
    """The names of some entries of a folder, not all of them, so that a huge folder does not use much memory."""
    try:
        with os.scandir(dir_fd) as entries:
            return [entry.name for entry in itertools.islice(entries, _NAMES_AT_A_TIME)]
    except PermissionError:
        os.fchmod(dir_fd, 0o700)
        with os.scandir(dir_fd) as entries:
            return [entry.name for entry in itertools.islice(entries, _NAMES_AT_A_TIME)]


def _step_into(parent: int, name: str, owner: tuple[int, int] | None) -> int:
    """Open the folder `name` in `parent`, making it if it is missing, and close `parent`."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
        if owner is not None:
            os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        pass
    folder = _open_beneath(parent, [name], _FOLDER_FLAGS, 0)
    os.close(parent)
    return folder


def _open_existing(parent: int, name: str, path: str) -> int:
    fd = _open_beneath(parent, [name], os.O_WRONLY | _PLAIN_FLAGS, 0)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def _open_beneath(dir_fd: int, parts: list[str], flags: int, mode: int) -> int:
    how = struct.pack("QQQ", flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
    try:
        return syscall("openat2", dir_fd, os.fsencode("/".join(parts)), how, len(how))
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise OSError(error.errno, os.strerror(error.errno or 0), "/".join(parts)) from error
    # An old kernel, or a container's filter that refuses the call.
    return _walk_beneath(dir_fd, parts, flags, mode)


def _walk_beneath(dir_fd: int, parts: list[str], flags: int, mode: int) -> int:
    parent = os.dup(dir_fd)
    try:
        for part in parts[:-1]:
            folder = os.open(part, _FOLDER_FLAGS, dir_fd=parent)
            os.close(parent)
            parent = folder
        return os.open(parts[-1], flags | os.O_NOFOLLOW, mode, dir_fd=parent)
    finally:
        os.close(parent)
