"""One-shot programs on rented machines: the common part of the backends for E2B, Modal and Daytona.

Each program gets a new machine: an archive is copied in, a shell command runs, an archive is copied out, and the
machine is stopped. The image needs `sh`, `tar`, `timeout`, `head` and the interpreter, for programs in trees also `du`.
A tree is copied in and out as a whole, and compared here. Limits are those of a POSIX shell (processor time, data, file
size and processes) and apply to each process; without a tree, `Limits.num_files` and the total size of all files are
not enforced. The archive that is copied out is untrusted: it is read in memory, and only plain files with exact names
are taken."""

from __future__ import annotations

import asyncio
import io
import shlex
import tarfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

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
from turnwise_sandbox.tree_archives import count_bytes, find_changes, pack_tree, read_found
from turnwise_sandbox.tree_store import StoredTree
from turnwise_sandbox.types import Execution, Limit, Limits, Network, Program
from turnwise_sandbox.whole_programs import WholePrograms

_LACKS_TOOLS = 96
"""Exit status on a machine that lacks a needed program."""


_ADD_TREE = 'size=$(du -sk work) && [ "${{size%%[!0-9]*}}" -le {kib} ] && set -- "$@" work'
"""Shell text that adds the program's folder to the arguments, unless it has grown beyond the quota."""

T = TypeVar("T")


class Machine(Protocol):
    """A running machine of a provider. An exception from a method counts as the provider's failure."""

    async def write(self, path: str, content: bytes) -> None:
        """Write a file, making its folder if needed."""
        ...

    async def execute(self, command: str, *, timeout_s: float) -> int:
        """Run a shell command and return its exit status."""
        ...

    async def read(self, path: str) -> bytes:
        """The content of a file."""
        ...

    async def stop(self) -> None:
        """Stop the machine."""
        ...


class MachineSandbox(WholePrograms):
    """Implements `Sandbox` on rented machines, but `open` always raises SandboxError."""

    def __init__(
        self,
        start: Callable[[float, Network], Awaitable[Machine]],
        *,
        level: str,
        max_concurrent: int,
        start_s: float,
        folder: str,
    ) -> None:
        """`start` rents a machine with the given network, which the provider must stop after the given seconds if this
        process does not. `level` is the provider's name. `max_concurrent` bounds the machines at a time. Starting,
        copying and stopping may each take `start_s` seconds. `folder` is a path, without spaces or quotes, that the
        image's user can make and write."""
        remedy = "install what the tree needs in the machine's image"
        super().__init__(level, max_concurrent=max_concurrent, remedy=remedy)
        self._start = start
        self._start_s = start_s
        self._folder = folder

    async def run_in(self, program: Program, limits: Limits, tree: StoredTree | None) -> Execution:
        """See `WholePrograms.run_in`."""
        archive = _pack(program, limits, self._folder, tree)
        machine = await self._wait("start a machine", self._start(limits.wall_s + 4 * self._start_s, program.network))
        try:
            await self._wait("copy the program in", machine.write(f"{self._folder}.in.tar", archive))
            started = time.perf_counter()
            timeout_s = limits.wall_s + self._start_s
            status = await self._wait(
                "run the program", machine.execute(_command(self._folder), timeout_s=timeout_s), limits.wall_s + 1
            )
            wall_s = time.perf_counter() - started
            if status == _LACKS_TOOLS:
                raise SandboxError(f"the machine of {self.level} lacks tar, timeout or head; choose another image")
            try:
                result: bytes | None = await self._wait("copy the results out", machine.read(f"{self._folder}/out.tar"))
            except SandboxError:
                if status == 0:
                    raise
                result = None  # the program killed the shell before the results were packed
        finally:
            await asyncio.shield(self._wait("stop the machine", machine.stop()))
        execution = _to_execution(program, limits, status, wall_s, result, self.level)
        return execution if tree is None else _add_changes(execution, result, tree, limits)

    async def _wait(self, what: str, work: Awaitable[T], extra_s: float = 0.0) -> T:
        with boundary(f"{self.level}: cannot {what}"):
            async with asyncio.timeout(self._start_s + extra_s):
                result = await work
        return result


def _pack(program: Program, limits: Limits, folder: str, tree: StoredTree | None) -> bytes:
    """The archive to copy in: the program, its stdin and files or tree, and `run.sh`, which makes `out.tar`."""
    source = SOURCE_NAMES[program.language]
    home = f"{folder}/work" if tree is None else f"{folder}/home"
    variables = build_environment(program.seed, home, f"{folder}/seed").items()
    outputs = "\n".join(_add_if_plain(check_path(path)) for path in program.outputs)
    script = f"""cd {folder}/work || exit {_LACKS_TOOLS}
({limit_commands(limits)}
exec env -i {" ".join(shlex.quote(f"{name}={value}") for name, value in variables)} timeout -s KILL {limits.wall_s:g} \\
{INTERPRETERS[program.language]} ../{source} <../stdin >../stdout 2>../stderr)
status=$?
cd ..
for stream in stdout stderr; do wc -c <$stream >$stream.size; head -c {limits.output_bytes} $stream >$stream.cut; done
set -- stdout.size stderr.size stdout.cut stderr.cut
{outputs}
{"" if tree is None else _ADD_TREE.format(kib=(count_bytes(tree) + limits.disk_bytes) // 1024)}
tar -cf out.tar "$@"
exit $status
"""
    contents = {
        "run.sh": script.encode(),
        source: encode_code(program.code),
        "stdin": program.stdin,
        "seed/sitecustomize.py": seeding_module(program.seed),
    }
    if tree is None:
        contents |= {f"work/{check_path(path)}": content for path, content in program.files.items()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("work", "home"):
            place = tarfile.TarInfo(name)
            place.type, place.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(place)
        if tree is not None:
            pack_tree(tree, archive, "work")
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o644
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _add_if_plain(path: str) -> str:
    """Shell text that adds a file of the program's folder to the arguments, unless it is reached through a link."""
    file = PurePosixPath("work", path)
    checks = [f"[ ! -h {shlex.quote(str(place))} ]" for place in (file, *file.parents[:-1])]
    return f'{" && ".join(checks)} && [ -f {shlex.quote(str(file))} ] && set -- "$@" {shlex.quote(str(file))}'


def _command(folder: str) -> str:
    return (
        f"for tool in tar timeout head; do command -v $tool >/dev/null || exit {_LACKS_TOOLS}; done; "
        f"mkdir -p {folder} && cd {folder} && tar -xf {folder}.in.tar && sh run.sh"
    )


def _to_execution(
    program: Program, limits: Limits, status: int, wall_s: float, result: bytes | None, level: str
) -> Execution:
    contents = _unpack(result, program, limits) if result is not None else {}
    stdout, stderr = contents.get("stdout.cut", b""), contents.get("stderr.cut", b"")
    dropped = [
        max(0, _to_size(contents.get(f"{name}.size", b"")) - limits.output_bytes) for name in ("stdout", "stderr")
    ]
    exit_code, signal = split_status(status)
    limit: Limit | None = None
    if wall_s >= limits.wall_s and (exit_code == 124 or signal == 9):
        limit, exit_code, signal = "wall", None, None
    elif any(dropped):
        limit = "output"
    elif exit_code != 0:
        limit = guess_limit(signal=signal, stderr=stderr)
    return Execution(
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        signal=signal,
        limit=limit,
        files={
            path: contents[f"work/{check_path(path)}"]
            for path in program.outputs
            if f"work/{check_path(path)}" in contents
        },
        stdout_dropped=dropped[0],
        stderr_dropped=dropped[1],
        wall_s=wall_s,
        level=level,
    )


def _add_changes(execution: Execution, result: bytes | None, tree: StoredTree, limits: Limits) -> Execution:
    """The execution with what the program wrote into its tree. Without an archive this is unknown; if the archive lacks
    the tree, or has more changes than allowed, the disk was full."""
    if result is None:
        return execution
    try:
        with tarfile.open(fileobj=io.BytesIO(result), mode="r:") as archive:
            found = read_found(archive, "work") if "work" in archive.getnames() else None
    except (tarfile.TarError, ValueError, EOFError, OSError):
        return execution
    changes = None
    if found is not None:
        changes = find_changes(found, tree, max_bytes=limits.disk_bytes, max_files=limits.num_files)
    if changes is None:
        return replace(execution, limit=execution.limit or "disk")
    return replace(execution, changes=changes)


def _unpack(result: bytes, program: Program, limits: Limits) -> dict[str, bytes]:
    """Name to content of the expected plain files in an untrusted archive, each cut at its limit; empty if it is no
    archive."""
    sizes = {"stdout.size": 32, "stderr.size": 32, "stdout.cut": limits.output_bytes, "stderr.cut": limits.output_bytes}
    sizes |= {f"work/{check_path(path)}": limits.disk_bytes for path in program.outputs}
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(result), mode="r:") as archive:
            for member in archive:
                if member.isreg() and member.name in sizes and (file := archive.extractfile(member)) is not None:
                    contents[member.name] = file.read(sizes[member.name])
    except (tarfile.TarError, ValueError, EOFError, OSError):
        return {}
    return contents


def _to_size(text: bytes) -> int:
    return int(text) if text.strip().isdigit() else 0
