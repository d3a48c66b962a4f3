"""A read-only root file system in memory, with the parts of the host that interpreters need and nothing else.

It is built once per zygote inside a new mount namespace (`CLONE_NEWNS`; with `CLONE_NEWUSER` if unprivileged). Cells
inherit it and mount their own scratch folder and /proc. All sources are opened before anything is covered, so
interpreters under /root or /tmp also work if this process may read them. Needs Linux 5.12.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Sequence

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel import syscalls

SCRATCH_PARENT = "/box"
"""The folder of the mount point: one Landlock rule on it covers what every cell mounts below."""
SCRATCH = f"{SCRATCH_PARENT}/own"
"""Where each cell mounts its own tmpfs. /tmp and /dev/shm are links into it, so cells share nothing writable."""
EMPTY = f"{SCRATCH_PARENT}/empty"
"""A folder that is always empty, used to cover another one."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives")
_ETC_FILES = ("/etc/ld.so.cache", "/etc/localtime")
_NAME_FILES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_LINKS = {
    "/tmp": f"{SCRATCH}/tmp",
    "/dev/shm": f"{SCRATCH}/tmp",
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}
_STAGING = ("/tmp", "/mnt", "/var", "/usr")
"""The new root is assembled on the first of these folders that exists. Only this process's mount namespace shows it."""
_READ_ONLY = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID
_MAX_MAP_AREAS = 100_000


def interpreter_paths() -> list[str]:
    """Absolute paths that this interpreter and the system's programs must read, for Landlock without a root of its own.

    They are system folders, a few files of names, harmless devices, the prefixes of the interpreter and its virtual
    environment (as named and resolved), and libraries loaded from other places. No path is below another one."""
    return _without_nested(
        [*_system_paths(), *filter(os.path.exists, (*_NAME_FILES, *_ETC_FILES, *_DEVICES)), *_python_paths()]
    )


def build_root(*, extra_paths: Sequence[str] = (), store: str | None = None, size_bytes: int = 8 << 20) -> bool:
    """Replace the root of this mount namespace by the read-only one. Returns whether the new root has a /proc.

    `extra_paths` are also shown, read-only and under their own names, and the folder `store` at `SCRATCH`, where the
    first mount of each cell covers it; None means none. `size_bytes` bounds the memory of the skeleton.
    The working folder becomes /. Raises SandboxError naming the step and path that failed: an interpreter that this
    user cannot read, a kernel without mount_setattr, a host root that cannot be left (ramdisk, chroot), or a lack of
    privileges. After a failure the process must exit."""
    binds = _without_nested([*_system_paths(), *_python_paths(), *map(os.path.abspath, extra_paths)])
    try:
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        links = {path: os.readlink(path) for path in binds if os.path.islink(path)}
        sources = {path: _open_source(path) for path in binds if path not in links}
        if store is not None:
            sources[SCRATCH] = _open_source(store)
        devices = {path: _open_source(path, device=True) for path in _DEVICES if os.path.exists(path)}
        contents = _etc_contents()
        staging = next(path for path in _STAGING if os.path.isdir(path) and not os.path.islink(path))
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("turnwise-root", staging, "tmpfs", flags, f"size={size_bytes},nr_inodes=4096,mode=755")
        old_umask = os.umask(0o022)
        for path, (tree, is_folder) in {**sources, **devices}.items():
            _attach(tree, staging + path, is_folder=is_folder)
        _write_skeleton(staging, links | _LINKS, contents)
        has_proc = _try_proc(f"{staging}/proc")
        os.umask(old_umask)
        _enter(staging)
    except OSError as error:
        raise SandboxError(f"could not build the sandbox's root file system: {error}") from error
    return has_proc


def mount_scratch(path: str, *, bytes: int, inodes: int) -> None:
    """Mount an empty tmpfs of limited size at `path` in this mount namespace. Raises OSError.

    `bytes` is rounded up to pages. `inodes` bounds files, folders and links besides those of `make_folders`.
    Set-user-id bits and device nodes have no effect in the tmpfs."""
    options = f"size={bytes},nr_inodes={inodes + 3},mode=777"
    syscalls.mount("turnwise-scratch", path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)


def make_folders(path: str, names: Sequence[str] = ("work", "tmp")) -> None:
    """Make folders in a new scratch folder, owned by the caller. Raises OSError."""
    for name in names:
        syscalls.syscall("mkdirat", syscalls.AT_FDCWD, os.fsencode(f"{path}/{name}"), 0o700)


def mount_proc() -> bool:
    """Mount a /proc of the present pid namespace. False if the host allows none and none is visible.

    Raises OSError if the /proc of another pid namespace would remain visible.
    """
    if _try_proc("/proc"):
        return True
    if os.path.lexists("/proc/self"):
        raise OSError(
            errno.EPERM,
            "the host does not allow a /proc for the new pid namespace, and the old one would remain visible",
            "/proc",
        )
    return False


def _try_proc(path: str) -> bool:
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    try:
        syscalls.mount("proc", path, "proc", flags)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        return False  # a user namespace gets no /proc if parts of the host's are covered, as in containers
    return True


def _system_paths() -> list[str]:
    return [path for path in _SYSTEM if os.path.exists(path)]


def _python_paths() -> list[str]:
    """The interpreter's prefixes, as named and resolved, and libraries that are loaded from other places."""
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    prefixes = [path for name in named for path in (os.path.abspath(name), os.path.realpath(name)) if path != "/"]
    covered = [*_SYSTEM, *prefixes]
    return [*prefixes, *(path for path in _mapped_files() if not _is_below(path, covered))]


def _mapped_files() -> list[str]:
    """Files that this process has mapped as code; empty without /proc."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(maxsplit=5) for _, line in zip(range(_MAX_MAP_AREAS), file, strict=False)]
    except OSError:
        return []
    return sorted(
        {
            row[5]
            for row in rows
            if len(row) == 6 and "x" in row[1] and row[5].startswith("/") and os.path.exists(row[5])
        }
    )


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _without_nested(paths: Iterable[str]) -> list[str]:
    """The paths, sorted and without duplicates, except those below another one that is no link."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not _is_below(path, (folder for folder in kept if not os.path.islink(folder))):
            kept.append(path)
    return kept


def _open_source(path: str, *, device: bool = False) -> tuple[int, bool]:
    """A detached, read-only copy of the mounts at `path`, and whether `path` is a folder. Raises OSError."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        readable = not is_folder or os.access(path, os.R_OK | os.X_OK, effective_ids=True)
    except PermissionError:
        readable = False
    if not readable:
        raise PermissionError(
            errno.EACCES,
            "this user cannot read it; install Python in a folder that it can read, or run as the owner",
            path,
        )
    tree = syscalls.open_tree(path)
    syscalls.set_mount_attributes(tree, _READ_ONLY | (0 if device else syscalls.MOUNT_ATTR_NODEV), recursive=True)
    return tree, is_folder


def _attach(tree: int, target: str, *, is_folder: bool) -> None:
    os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
    if not is_folder:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    syscalls.move_mount(tree, target)
    os.close(tree)


def _etc_contents() -> dict[str, bytes]:
    """Path to content of small files under /etc. The library cache and the time zone are the host's; the other files
    are generated and do not name the host's users."""
    uid, gid = os.geteuid(), os.getegid()
    users = {0: "root", uid: "sandbox", 65534: "nobody"}
    groups = {0: "root", gid: "sandbox", 65534: "nogroup"}
    contents = {
        "/etc/passwd": "".join(
            f"{name}:x:{number}:{number}::{SCRATCH}/work:/bin/bash\n" for number, name in users.items()
        ).encode(),
        "/etc/group": "".join(f"{name}:x:{number}:\n" for number, name in groups.items()).encode(),
        "/etc/hosts": b"127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
    }
    for path in _ETC_FILES:
        try:
            with open(path, "rb") as file:
                contents[path] = file.read(1 << 20)
        except OSError:  # a system without the file does not need it
            continue
    return contents


def _write_skeleton(staging: str, links: dict[str, str], contents: dict[str, bytes]) -> None:
    for folder in ("/dev", "/etc", "/proc", SCRATCH, EMPTY):
        os.makedirs(staging + folder, exist_ok=True)
    for path, target in links.items():
        os.makedirs(os.path.dirname(staging + path), exist_ok=True)
        if not os.path.lexists(staging + path):
            os.symlink(target, staging + path)
    for path, content in contents.items():
        with open(staging + path, "wb") as file:
            file.write(content)


def _enter(new_root: str) -> None:
    """Make the staging folder the root, detach the old root, and make the skeleton read-only."""
    os.chdir(new_root)
    syscalls.pivot_root(".", ".")  # the old root ends up on top of the new one, and is detached from there
    syscalls.umount(".", syscalls.MNT_DETACH)
    os.chdir("/")
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syscalls.set_mount_attributes(root, _READ_ONLY | syscalls.MOUNT_ATTR_NODEV, recursive=False)
    finally:
        os.close(root)
