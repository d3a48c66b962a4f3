"""One-shot programs in bubblewrap: the fallback for foreign binaries and root file systems.

Slower than the preloaded interpreters and without sessions; what it adds is `root_folder`. Namespaces of all kinds, no
capabilities, a read-only root, a tmpfs of limited size for the program's files, and limits by rlimit. Not enforced:
`Limits.num_files`; memory is per process; both network profiles have a loopback interface of their own and nothing
else. It knows nothing about HTTP, tools or rewards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal

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
from turnwise_sandbox.types import Execution, Limit, Limits, Network, Profile, Program, Session

LEVEL = "bubblewrap"
_FOLDER = "/work"
_PROGRAM_FOLDER = "/run/program"
_START_S = 10.0
"""How long bubblewrap may take to build the namespaces."""
_END_S = 10.0
"""How long the kernel may take to end what was killed."""
_CHUNK_BYTES = 1 << 16
_MAX_FILES = 500
"""Each is handed over as an open descriptor."""
_NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
"""Who starts bubblewrap. The kernel never limits the number of root's processes, not even in a user namespace of their
own."""
_SCRIPT = 'echo; read -r _; {limits}; exec "$@"'
"""Runs in the sandbox before the program: says on stdout that it is there, then waits for a line on stdin, so that the
host can take hold of the program's folder in between."""


class BubblewrapSandbox:
    """Implements `Sandbox.run`; `open` refuses."""

    def __init__(
        self,
        *,
        root_folder: str | None = None,
        read_only: Sequence[str] = (),
        max_concurrent: int | None = None,
        bwrap: str = "bwrap",
    ) -> None:
        """`root_folder`: the host folder that becomes `/`, read-only (it needs `sh` and the interpreter); None shows
        the host's `/usr` and nothing else. `read_only`: further host paths, seen at the same place. Both must be
        readable for user nobody when this process is root's. `max_concurrent`: None allows two per core. `bwrap`: the
        program, by name or path.

        Raises SandboxError when bubblewrap or `root_folder` is missing; that the kernel refuses namespaces shows at
        `run`."""
        found = shutil.which(bwrap)
        if found is None:
            raise SandboxError(f"no {bwrap!r} on PATH; install bubblewrap, or use the local sandbox")
        if root_folder is not None and not os.path.isdir(root_folder):
            raise SandboxError(f"root_folder {root_folder!r} is not a folder; name an unpacked root file system")
        self._bwrap = found
        self._root = _root_arguments(root_folder, read_only)
        self._places = asyncio.Semaphore(max_concurrent or 2 * (os.cpu_count() or 1))
        self._running: set[asyncio.Task[Execution]] = set()
        self._closed = False

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        """See `Sandbox.run`. Raises SandboxError after `close`, for a path that leaves the folder, or when bubblewrap
        fails."""
        async with self._places:
            if self._closed:
                raise SandboxError("the bubblewrap sandbox is closed; build a new one")
            task = asyncio.ensure_future(self._run(program, limits))
            self._running.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                if self._closed:
                    raise SandboxError("the bubblewrap sandbox was closed while the program ran") from None
                raise
            finally:
                self._running.discard(task)

    async def open(
        self,
        language: Literal["python", "bash"] = "python",
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
    ) -> Session:
        """Always raises SandboxError: this backend has no live sessions."""
        raise SandboxError(
            f"the bubblewrap sandbox has no live {language} sessions; use the local sandbox, or run whole programs"
        )

    async def close(self) -> None:
        """End everything. A second call does nothing."""
        self._closed = True
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, program: Program, limits: Limits) -> Execution:
        outputs = [check_path(path) for path in program.outputs]
        with contextlib.ExitStack() as held:
            process, status = self._start(program, limits, held)
            try:
                folder, first = await _await_start(process, status, held)
                end = await _supervise(process, first, program.stdin, limits)
            finally:
                # Where this is reached before the first process is known, its death signal ends it with bubblewrap.
                process.kill()
                exit_status = process.wait()
            found = {
                path: content
                for path in outputs
                if (content := _read_below(folder, path, limits.disk_bytes)) is not None
            }
        return _to_execution(end, exit_status, found)

    def _start(
        self, program: Program, limits: Limits, held: contextlib.ExitStack
    ) -> tuple[subprocess.Popen[bytes], int]:
        """The process, waiting before the program, and the descriptor that names its process id; `held` closes it."""
        status_read, status_write = os.pipe()
        held.callback(os.close, status_read)
        with contextlib.ExitStack() as handed:
            handed.callback(os.close, status_write)
            source = f"{_PROGRAM_FOLDER}/{SOURCE_NAMES[program.language]}"
            copies = {
                source: encode_code(program.code),
                f"{_PROGRAM_FOLDER}/seed/sitecustomize.py": seeding_module(program.seed),
            }
            copies |= {f"{_FOLDER}/{check_path(path)}": content for path, content in program.files.items()}
            if len(copies) > _MAX_FILES:
                raise SandboxError(
                    f"{len(program.files)} files are more than the bubblewrap sandbox takes ({_MAX_FILES - 2}); "
                    "send an archive"
                )
            arguments: list[str] = []
            passed = [status_write]
            for path, content in copies.items():
                passed.append(_memory_file(handed, content))
                arguments += ["--perms", "0644", "--file", str(passed[-1]), path]
            for name, value in build_environment(program.seed, _FOLDER, f"{_PROGRAM_FOLDER}/seed").items():
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
                *("--json-status-fd", str(status_write), *self._root, "--tmpfs", "/run", "--symlink", _FOLDER, "/tmp"),
                *(
                    "--size",
                    str(limits.disk_bytes),
                    "--tmpfs",
                    _FOLDER,
                    *arguments,
                    "--remount-ro",
                    "/run",
                    "--chdir",
                    _FOLDER,
                ),
                *(
                    "sh",
                    "-c",
                    _SCRIPT.format(limits=limit_commands(limits)),
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


def _root_arguments(root_folder: str | None, read_only: Sequence[str]) -> list[str]:
    if root_folder is not None:
        # Bound one by one: other mounts need a folder in `/`, which a root bound as a whole could not get.
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
    """A descriptor at the start of a file in memory that holds `content`; `held` closes it."""
    descriptor = os.memfd_create("program")
    held.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _await_start(process: subprocess.Popen[bytes], status: int, held: contextlib.ExitStack) -> tuple[int, int]:
    """Wait for the sandbox to stand. A descriptor of its folder, which keeps the folder alive when the sandbox is gone,
    and one of its first process, with which every other dies; `held` closes both."""
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
        said = (process.stderr.read(2000) or b"no message").decode("utf-8", "replace").strip()
        hint = "; as root, user nobody must be able to read every folder it is given" if _NOBODY else ""
        raise SandboxError(f"bubblewrap could not build the sandbox: {said}{hint}")
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
    """Wait until the descriptor can be read, or written; for a process's descriptor, until the process is gone."""
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
    """The three pipes of a process, not blocking; closed together."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._files = [file for file in (process.stdin, process.stdout, process.stderr) if file is not None]
        for file in self._files:
            os.set_blocking(file.fileno(), False)

    def close(self) -> None:
        for file in self._files:
            with contextlib.suppress(BrokenPipeError):
                file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How the program's time went."""

    stdout: Capture
    stderr: Capture
    limit: Limit | None
    wall_s: float


async def _supervise(process: subprocess.Popen[bytes], first: int, stdin: bytes, limits: Limits) -> _End:
    """Let the program run until it ends, its time is up or it printed too much; then everything in the sandbox is
    ended."""
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
    # The first process of a pid namespace is gone when all others are: nothing can write any more.
    try:
        async with asyncio.timeout(_END_S):
            await _await_ready(first)
    except TimeoutError:
        raise SandboxError(
            f"processes of the bubblewrap sandbox were killed and are not gone after {_END_S:g} s"
        ) from None
    for fd, capture in streams.items():
        capture.drain(fd)
    stdout, stderr = streams.values()
    if limit is None and (stdout.dropped or stderr.dropped):
        limit = "output"
    return _End(stdout=stdout, stderr=stderr, limit=limit, wall_s=wall_s)


async def _feed(pipe: IO[bytes], stdin: bytes) -> None:
    """Write all of it and close the pipe; a program that does not read it may end meanwhile."""
    left = memoryview(stdin)
    with pipe, contextlib.suppress(BrokenPipeError):
        while left:
            try:
                left = left[os.write(pipe.fileno(), left[:_CHUNK_BYTES]) :]
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


# ------------------------------------------------------------------------------------------------ files, confined


def _read_below(folder: int, path: str, max_bytes: int) -> bytes | None:
    """A plain file below `folder`, no symbolic link on the way; None when there is none. The program is over by now."""
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
