"""Mounts the tree of a cell: read-only layers of a store, merged with an empty folder of edits in memory.

The store is mounted where each cell mounts its scratch folder, which covers it, so no program sees a layer that is not
part of its tree. The folder of edits is covered too; only a descriptor reaches it. Where the cell has a user id of its
own, the store is shown as if that user owned it (an idmapped mount), so one copy on disk serves all cells and programs
may change what they find. Needs Linux 5.19 with idmapped mounts, else 5.11."""

from __future__ import annotations

import os
import signal

from turnwise_sandbox.kernel import root, syscalls

NUM_FOLDERS = 4
"""Folders of a tree beside those of an empty scratch folder: one that holds the edits, the edits, and two that the
kernel works in."""

_OPTIONS = "index=off,metacopy=off,redirect_dir=nofollow"
"""Mount options that switch off kernel features which would store something other than plain files among the edits."""


def map_owner(uid: int, number: int) -> int:
    """Turn descriptor `number` into one of a user namespace in which user and group 0 stand for `uid`. The caller must
    have one thread, and /proc. Raises OSError."""
    pid = syscalls.clone_process(syscalls.CLONE_NEWUSER)
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "wb", buffering=0) as file:
                file.write(b"0 %d 1" % uid)
        namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(namespace, number, inheritable=False)
        os.close(namespace)
        return number
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def mount_tree(path: str, lowers: str, *, bytes: int, inodes: int, owner: tuple[int, int] | None) -> int:
    """Mount a scratch folder at `path`, and in its `work` the store's layers `lowers` (their names, the first on top)
    under the edits. Returns a descriptor of the edits.

    `owner` is the cell's user id and the descriptor of its mapping (`map_owner`); None means that the caller's user
    owns the store. `bytes` and `inodes` bound the edits and all other files of the scratch folder. Raises OSError."""
    if owner is not None:
        store = syscalls.open_tree(path)
        syscalls.map_owners(store, owner[1])
        syscalls.move_mount(store, path)
        os.close(store)
    os.chdir(path)  # from here names without a folder reach the store also after it was covered
    root.mount_scratch(path, bytes=bytes, inodes=inodes + NUM_FOLDERS)
    for name in ("layer", "layer/edits", "layer/inner", "work"):
        os.mkdir(f"{path}/{name}", 0o700)
    if owner is not None:
        os.chown(f"{path}/layer/edits", owner[0], owner[0])
    places = f"lowerdir={lowers},upperdir={path}/layer/edits,workdir={path}/layer/inner"
    options = f"{places},{_OPTIONS}" + (",userxattr" if owner is None else "")
    syscalls.mount("turnwise-tree", f"{path}/work", "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    edits = os.open(f"{path}/layer/edits", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.mount(root.EMPTY, f"{path}/layer", None, syscalls.MS_BIND)
    return edits


def try_tree(path: str, lowers: str, owner: tuple[int, int] | None) -> None:
    """Mount a tree and do in it what programs do, to find out whether this machine can. `lowers` must hold the file
    `folder/file`. Raises OSError for what does not work."""
    os.close(mount_tree(path, lowers, bytes=1 << 20, inodes=64, owner=owner))
    if owner is not None:
        syscalls.set_identity(owner[0], owner[0])
    os.chdir(f"{path}/work")
    with open("folder/file", "ab") as file:
        file.write(b"edited")
    os.chmod("folder/file", 0o600)
    os.unlink("folder/file")
    os.rmdir("folder")
    os.mkdir("folder")  # needs an extended attribute that hides the layers' folder
    if os.listdir("folder"):
        raise OSError("overlayfs still shows a removed file")
