"""One-shot programs in bubblewrap, for foreign binaries and root file systems.

Slower than the preloaded interpreters and without sessions, but programs can run in another root folder. A program has
namespaces of all kinds, no capabilities, a read-only root, a tmpfs of limited size for its files, and rlimits.
`Limits.num_files` is not enforced, memory is limited per process, and with either network profile the program has a
loopback interface of its own and no other."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from turnwise_sandbox.capture import Capture
from turnwise_sandbox.errors import SandboxError, boundary
from turnwise_sandbox.foreign import (
    INTERPRETERS,
    SOURCE_NAMES,
    build_environment,
    check_path,
    encode_code,
    guess_limit,
    limit_commands,
    seeding_module,
    split_status,
)
from turnwise_sandbox.tree_archives import count_bytes, pack_tree
from turnwise_sandbox.tree_changes import ChangesTooLarge, read_changes
from turnwise_sandbox.tree_store import StoredTree
from turnwise_sandbox.types import Execution, Limit, Limits, Program
from turnwise_sandbox.whole_programs import WholePrograms

LEVEL = "bubblewrap"
"""The `level` of this backend's executions."""
_FOLDER = "/work"
_PROGRAM_FOLDER = "/run/program"
_START_S = 10.0
"""How long bubblewrap may take to build the namespaces."""
_END_S = 10.0
"""How long the kernel may take to end killed processes."""
_CHUNK_BYTES = 1 << 16
_MAX_FILES = 500
"""Maximum number of files of a program; each needs an open descriptor."""
_NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
"""The user that runs bubblewrap if this process runs as root: the kernel never limits how many processes root has, not
even in a user namespace."""
_HOME = "/tmp"
"""HOME and TMPDIR of a program in a tree."""
_TREE = f"{_PROGRAM_FOLDER}/tree.tar"
_UNPACK = f"tar -xf {_TREE} -C {_FOLDER} || exit 1; "
"""Shell text that runs before `_SCRIPT`, as the program's user."""
_SCRIPT = 'echo; read -r _; {limits}; exec "$@"'
"""Shell text that runs in the sandbox before the program: it writes a line to stdout, then waits for one on stdin, so
that the host can open the program's folder in between."""


class BubblewrapSandbox(WholePrograms):
    """Implements `Sandbox`, but `open` always raises SandboxError."""

    def __init__(
        self,
        *,
        root_folder: str | None = None,
        read_only: Sequence[str] = (),
        max_concurrent: int | None = None,
        bwrap: str = "bwrap",
    ) -> None:
        """`root_folder` is the host folder that becomes the read-only `/` and must hold `sh` and the interpreter, for
        programs in trees also `tar`; None shows the host's `/usr` and nothing else. `read_only` names further host
        paths to show in the same places. If this process runs as root, the user nobody must be able to read both.
        `max_concurrent` bounds the programs at a time; None means two per core. `bwrap` is the name or path of
        bubblewrap.

        Raises SandboxError if bubblewrap or `root_folder` is missing. A kernel that refuses namespaces makes `run`
        raise it."""
        places = max_concurrent or 2 * (os.cpu_count() or 1)
        super().__init__(LEVEL, max_concurrent=places, remedy="name them in read_only")
        executable = shutil.which(bwrap)
        if executable is None:
            raise SandboxError(f"no {bwrap!r} on PATH; install bubblewrap, or use the local sandbox")
        if root_folder is not None and not os.path.isdir(root_folder):
            raise SandboxError(f"root_folder {root_folder!r} is not a folder; name an unpacked root file system")
        self._bwrap = executable
        self._root = _root_arguments(root_folder, read_only)

    async def run_in(self, program: Program, limits: Limits, tree: StoredTree | None) -> Execution:
        """See `WholePrograms.run_in`."""
        outputs = [check_path(path) for path in program.outputs]
        with contextlib.ExitStack() as held:
            process, status = self._start(program, limits, tree, held)
            try:
                folder, first = await _await_start(process, status, held)
                end = await _supervise(process, first, program.stdin, limits)
            finally:
                # Bubblewrap's parent-death signal ends the sandbox if its first process is still unknown.
                process.kill()
                exit_status = process.wait()
            contents = {path: _read_below(folder, path, limits.disk_bytes) for path in outputs}
            files = {path: content for path, content in contents.items() if content is not None}
            execution = _to_execution(end, exit_status, files)
            return execution if tree is None else _add_changes(execution, folder, tree, limits)

    def _start(
        self, program: Program, limits: Limits, tree: StoredTree | None, held: contextlib.ExitStack
    ) -> tuple[subprocess.Popen[bytes], int]:
        """The process, which waits before it runs the program, and a descriptor that tells its process id. Leaving
        `held` closes the descriptor and the pipes."""
        status_read, status_write = os.pipe()
        held.callback(os.close, status_read)
        with contextlib.ExitStack() as handed:
            handed.callback(os.close, status_write)
            source = f"{_PROGRAM_FOLDER}/{SOURCE_NAMES[program.language]}"
            copies = {
                source: encode_code(program.code),
                f"{_PROGRAM_FOLDER}/seed/sitecustomize.py": seeding_module(program.seed),
            }
            if tree is None:
                copies |= {f"{_FOLDER}/{check_path(path)}": content for path, content in program.files.items()}
            else:
                copies[_TREE] = _pack(tree)
            if len(copies) > _MAX_FILES:
                raise SandboxError(
                    f"{len(program.files)} files are more than the {_MAX_FILES - 2} that the bubblewrap sandbox "
                    "accepts; send an archive"
                )
            arguments: list[str] = []
            passed = [status_write]
            for path, content in copies.items():
                passed.append(_memory_file(handed, content))
                arguments += ["--perms", "0644", "--file", str(passed[-1]), path]
            home = _FOLDER if tree is None else _HOME
            for name, value in build_environment(program.seed, home, f"{_PROGRAM_FOLDER}/seed").items():
                arguments += ["--setenv", name, value]
            command = [
                *(
                    self._bwrap,
                    "--unshare-all",
                    "--unshare-user",
                    "--disable-userns",
                    "--die-with-parent",
                    "--new-session",
                ),
                *("--clearenv", "--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "sandbox"),
                *("--json-status-fd", str(status_write), *self._root, "--tmpfs", "/run"),
                *_folder_arguments(limits, tree),
                *(
                    *arguments,
                    "--remount-ro",
                    "/run",
                    "--chdir",
                    _FOLDER,
                ),
                *(
                    "sh",
                    "-c",
                    ("" if tree is None else _UNPACK) + _SCRIPT.format(limits=limit_commands(limits)),
                    "sh",
                    INTERPRETERS[program.language],
                    source,
                ),
            ]
            pipe = subprocess.PIPE
            with boundary("cannot start bubblewrap"):
                process = subprocess.Popen(
                    command,
                    stdin=pipe,
                    stdout=pipe,
                    stderr=pipe,
                    bufsize=0,
                    pass_fds=passed,
                    env={},
                    start_new_session=True,
                    **_NOBODY,
                )
        held.enter_context(contextlib.closing(_Pipes(process)))
        return process, status_read


def _folder_arguments(limits: Limits, tree: StoredTree | None) -> list[str]:
    """The program's folder, and where HOME and TMPDIR are: there too, or beside the tree."""
    if tree is None:
        return ["--symlink", _FOLDER, "/tmp", "--size", str(limits.disk_bytes), "--tmpfs", _FOLDER]
    size = str(limits.disk_bytes + count_bytes(tree))
    return ["--size", str(limits.disk_bytes), "--tmpfs", _HOME, "--size", size, "--tmpfs", _FOLDER]


def _pack(tree: StoredTree) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        pack_tree(tree, archive, ".")
    return packed.getvalue()


def _add_changes(execution: Execution, folder: int, tree: StoredTree, limits: Limits) -> Execution:
    """The execution with what the program wrote into its tree. `folder` is a descriptor of the tree."""
    try:
        changes = read_changes(folder, tree, is_overlay=False, max_bytes=limits.disk_bytes, max_files=limits.num_files)
    except ChangesTooLarge:
        return replace(execution, limit=execution.limit or "disk")
    return replace(execution, changes=changes)


def _root_arguments(root_folder: str | None, read_only: Sequence[str]) -> list[str]:
    if root_folder is not None:
        # Bind each entry: other mounts need a new folder in `/`, which a root bound as a whole cannot get.
        arguments = []
        for name in sorted(os.listdir(root_folder)):
            path = os.path.join(root_folder, name)
            if os.path.islink(path):
                arguments += ["--symlink", os.readlink(path), f"/{name}"]
            elif name not in {"proc", "dev", "sys", "tmp", "run", _FOLDER[1:]}:
                arguments += ["--ro-bind", path, f"/{name}"]
    else:
        arguments = ["--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            if os.path.islink(f"/{name}"):
                arguments += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
            elif os.path.isdir(f"/{name}"):
                arguments += ["--ro-bind", f"/{name}", f"/{name}"]
        for path in ("/etc/ld.so.cache", "/etc/alternatives"):
            arguments += ["--ro-bind-try", path, path]
    for path in read_only:
        arguments += ["--ro-bind", path, path]
    return [*arguments, "--proc", "/proc", "--dev", "/dev"]


def _memory_file(held: contextlib.ExitStack, content: bytes) -> int:
    """A descriptor of a file in memory that holds `content`, at its start; leaving `held` closes it."""
    descriptor = os.memfd_create("program")
    held.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _await_start(process: subprocess.Popen[bytes], status: int, held: contextlib.ExitStack) -> tuple[int, int]:
    """Wait until the sandbox is built. Returns a descriptor of its folder, which keeps the folder after the sandbox
    ended, and one of its first process, with which all others die; leaving `held` closes both. Raises SandboxError."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_S):
            await _await_ready(process.stdout.fileno())
    except TimeoutError:
        raise SandboxError(
            f"bubblewrap did not build the sandbox within {_START_S:g} s; is the machine overloaded?"
        ) from None
    if process.stdout.read(1) != b"\n":
        message = (process.stderr.read(2000) or b"no message").decode("utf-8", "replace").strip()
        hint = "; as root, the user nobody must be able to read every folder it is given" if _NOBODY else ""
        raise SandboxError(f"bubblewrap could not build the sandbox: {message}{hint}")
    try:
        first_id = json.loads(os.read(status, 4096).splitlines()[0])["child-pid"]
        first = os.pidfd_open(first_id)
        held.callback(os.close, first)
        folder = os.open(f"/proc/{first_id}/root{_FOLDER}", os.O_RDONLY | os.O_DIRECTORY)
        held.callback(os.close, folder)
    except (OSError, ValueError, KeyError, IndexError) as cause:
        raise SandboxError(f"cannot reach the files of the bubblewrap sandbox: {cause}") from cause
    return folder, first


async def _await_ready(fd: int, *, to_write: bool = False) -> None:
    """Wait until the descriptor can be read or, with `to_write`, written. A pidfd can be read when its process ends."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not ready.done():
            ready.set_result(None)

    (loop.add_writer if to_write else loop.add_reader)(fd, settle)
    try:
        await ready
    finally:
        (loop.remove_writer if to_write else loop.remove_reader)(fd)


# ------------------------------------------------------------------------------------------------ the program's life


class _Pipes:
    """The three pipes of a process, made non-blocking and closed together."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._files = [file for file in (process.stdin, process.stdout, process.stderr) if file is not None]
        for file in self._files:
            os.set_blocking(file.fileno(), False)

    def close(self) -> None:
        """Close the pipes."""
        for file in self._files:
            with contextlib.suppress(BrokenPipeError):
                file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The end of a program: its output, the limit that ended it (None if none did), and its elapsed time."""

    stdout: Capture
    stderr: Capture
    limit: Limit | None
    wall_s: float


async def _supervise(process: subprocess.Popen[bytes], first: int, stdin: bytes, limits: Limits) -> _End:
    """Let the program run until it ends, its time is up or it printed too much; then end everything in the sandbox."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdin is not None
    loop = asyncio.get_running_loop()
    over: asyncio.Future[Limit | None] = loop.create_future()
    streams = {file.fileno(): Capture(limits.output_bytes) for file in (process.stdout, process.stderr)}
    started = time.perf_counter()

    def settle(limit: Limit | None) -> None:
        if not over.done():
            over.set_result(limit)

    def read(fd: int, capture: Capture) -> None:
        if not capture.read(fd) or capture.dropped:
            loop.remove_reader(fd)
        if capture.dropped:
            settle("output")

    exited = os.pidfd_open(process.pid)
    feeding = asyncio.ensure_future(_feed(process.stdin, b"\n" + stdin))
    try:
        loop.add_reader(exited, settle, None)
        for fd, capture in streams.items():
            loop.add_reader(fd, read, fd, capture)
        done, _ = await asyncio.wait({over}, timeout=limits.wall_s)
        limit = over.result() if done else "wall"
    finally:
        wall_s = time.perf_counter() - started
        feeding.cancel()
        for fd in (exited, *streams):
            loop.remove_reader(fd)
        os.close(exited)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
        await asyncio.gather(feeding, return_exceptions=True)
    # The first process of a pid namespace ends last, so nothing can write after it has ended.
    try:
        async with asyncio.timeout(_END_S):
            await _await_ready(first)
    except TimeoutError:
        raise SandboxError(
            f"processes of the bubblewrap sandbox are still alive {_END_S:g} s after they were killed"
        ) from None
    for fd, capture in streams.items():
        capture.drain(fd)
    stdout, stderr = streams.values()
    if limit is None and (stdout.dropped or stderr.dropped):
        limit = "output"
    return _End(stdout=stdout, stderr=stderr, limit=limit, wall_s=wall_s)


async def _feed(pipe: IO[bytes], stdin: bytes) -> None:
    """Write `stdin` and close the pipe. A program may end without reading it."""
    unsent = memoryview(stdin)
    with pipe, contextlib.suppress(BrokenPipeError):
        while unsent:
            try:
                unsent = unsent[os.write(pipe.fileno(), unsent[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                await _await_ready(pipe.fileno(), to_write=True)


def _to_execution(end: _End, status: int, files: dict[str, bytes]) -> Execution:
    exit_code, signalled = (None, None) if end.limit else split_status(status)
    stderr = end.stderr.take()
    limit = end.limit or (None if exit_code == 0 else guess_limit(signal=signalled, stderr=stderr))
    return Execution(
        stdout=end.stdout.take(),
        stderr=stderr,
        exit_code=exit_code,
        signal=signalled,
        limit=limit,
        files=files,
        stdout_dropped=end.stdout.dropped,
        stderr_dropped=end.stderr.dropped,
        wall_s=end.wall_s,
        level=LEVEL,
    )


# ------------------------------------------------------------------------------------------------ files


def _read_below(folder: int, path: str, max_bytes: int) -> bytes | None:
    """The first `max_bytes` of a plain file below `folder`, reached without symbolic links; None if there is none. Call
    it after the program has ended."""
    parent = os.dup(folder)
    *names, last = path.split("/")
    try:
        for name in names:
            parent, above = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent), parent
            os.close(above)
        with open(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent), "rb") as file:
            return file.read(max_bytes) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(parent)
