"""The backends for E2B, Modal and Daytona with fake SDKs, whose machines are folders of this one."""

from __future__ import annotations

import asyncio
import io
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_machines import BUILDERS, fake_sdks

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.remote.e2b import build_e2b_sandbox
from turnwise_sandbox.remote.machine import MachineSandbox
from turnwise_sandbox.types import Execution, Limits, Program

needs_tools = pytest.mark.skipif(
    not all(shutil.which(tool, path="/usr/local/bin:/usr/bin:/bin") for tool in ("python3", "bash", "timeout", "tar")),
    reason="the fake machines need python3, bash, timeout and tar in /usr/bin",
)


@pytest.fixture
def machines() -> Iterator[Any]:
    """Replaces the real SDKs by the fake ones; returns the module that lists their machines."""
    with fake_sdks() as machines:
        yield machines


def run(sandbox: MachineSandbox, program: Program, limits: Limits | None = None) -> Execution:
    async def once() -> Execution:
        try:
            return await sandbox.run(program, limits or Limits())
        finally:
            await sandbox.close()

    return asyncio.run(once())


@needs_tools
@pytest.mark.parametrize("name", BUILDERS)
def test_a_program_goes_through_and_its_machine_goes(name: str, machines: Any, tmp_path: Path) -> None:
    code = (
        b"import os, sys\nsys.stdout.buffer.write(sys.stdin.buffer.read() + open('in/a.bin', 'rb').read())\n"
        b"sys.stderr.write(os.environ.get('E2B_API_KEY', 'clean') + ' ' + ' '.join(sorted(os.listdir('.'))))\n"
        b"open('o.bin', 'wb').write(b'\\x01'); os.symlink('/etc/passwd', 'link'); sys.exit(3)"
    )
    program = Program(code=code, stdin=b"\xff", files={"in/a.bin": b"\x80"}, outputs=("o.bin", "missing", "link"))
    execution = run(BUILDERS[name][0](folder=f"{tmp_path}/m"), program)
    assert (execution.stdout, execution.stderr) == (b"\xff\x80", b"clean in")
    assert (execution.exit_code, execution.signal, execution.limit, execution.level) == (3, None, None, name)
    assert execution.files == {"o.bin": b"\x01"}
    (machine,) = machines.MACHINES
    assert machine.num_stops == 1
    assert machine.options["network"] is False
    assert machine.options["key"] == {"e2b": "key-e", "modal": "key:m", "daytona": "key-d"}[name]
    assert machine.options["lifetime_s"] >= 60
    if name == "daytona":
        assert sys.modules["daytona"].AsyncDaytona.num_open == 0


@needs_tools
def test_how_programs_end(machines: Any, tmp_path: Path) -> None:
    def end(code: str, limits: Limits | None = None, language: Any = "python") -> Execution:
        return run(build_e2b_sandbox(folder=f"{tmp_path}/m"), Program(code=code, language=language), limits)

    slow = end("print('began', flush=True)\nwhile True: pass", Limits(wall_s=0.5))
    assert (slow.stdout, slow.exit_code, slow.limit) == (b"began\n", None, "wall")
    crash = end("import os; os.kill(os.getpid(), 11)")
    assert (crash.exit_code, crash.signal, crash.limit) == (None, 11, None)
    long = end("print('x' * 1000, end='')", Limits(output_bytes=100))
    assert (long.stdout, long.stdout_dropped, long.limit) == (b"x" * 100, 900, "output")
    hungry = end("bytearray(1 << 30)", Limits(memory_bytes=200 << 20))
    assert (hungry.exit_code, hungry.limit) == (1, "memory")
    full = end("open('f', 'wb').write(b'0' * 2_000_000)", Limits(disk_bytes=1 << 20))
    assert full.limit == "disk"
    assert end("exit 5", language="bash").exit_code == 5
    seeded = [end("import random; print(random.random(), hash('a'))").stdout for _ in range(2)]
    assert seeded[0] == seeded[1] != b""
    # A program that kills the shell that would report on it has ended; the provider has not failed.
    killer = end("import os; os.kill(os.getppid(), 9); os.kill(os.getpgrp(), 9)", language="python")
    assert not killer.ok


def test_what_comes_out_is_not_trusted(machines: Any, tmp_path: Path) -> None:
    """An archive that the program wrote, with names that leave the folder, links and a malformed number."""
    forged = io.BytesIO()
    with tarfile.open(fileobj=forged, mode="w") as archive:
        for name, content in (
            ("../../evil", b"x"),
            ("stdout.cut", b"o" * 5000),
            ("stdout.size", b"9" * 5000),
            ("work/o", b"out"),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("stderr.cut")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)

    class Forger:
        def __init__(self, content: bytes) -> None:
            self.content = content

        async def write(self, path: str, content: bytes) -> None: ...

        async def execute(self, command: str, *, timeout_s: float) -> int:
            return 0

        async def read(self, path: str) -> bytes:
            return self.content

        async def stop(self) -> None: ...

    def forge(content: bytes) -> Execution:
        async def start(lifetime_s: float, network: str) -> Forger:
            return Forger(content)

        sandbox = MachineSandbox(start, level="forged", max_concurrent=1, start_s=5.0, folder="/nowhere")
        return run(sandbox, Program(code="", outputs=("o",)), Limits(output_bytes=1000, disk_bytes=2))

    execution = forge(forged.getvalue())
    assert execution.stdout == b"o" * 1000
    assert execution.stderr == b""
    assert execution.files == {"o": b"ou"}
    for content in (b"", b"garbage" * 1000, forged.getvalue()[:700]):
        assert forge(content).exit_code == 0  # nothing raises


def test_paths_that_leave_the_folder_are_refused_before_anything_is_rented(machines: Any) -> None:
    sandbox = build_e2b_sandbox()
    for path in ("../x", "/etc/x", "a/../../x", "", "a\nb"):
        for program in (Program(code="", files={path: b""}), Program(code="", outputs=(path,))):
            with pytest.raises(SandboxError, match="must be relative"):
                asyncio.run(sandbox.run(program))
    assert machines.MACHINES == []


@pytest.mark.parametrize("operation", ["start", "write", "execute", "read", "stop"])
def test_a_provider_that_fails_is_a_sandbox_error_and_the_machine_is_stopped(
    operation: str, machines: Any, tmp_path: Path
) -> None:
    machines.FAIL_AT.add(operation)
    with pytest.raises(SandboxError, match=f"e2b: cannot .*{operation}: the provider is down"):
        run(build_e2b_sandbox(folder=f"{tmp_path}/m"), Program(code=""))
    assert machines.MACHINES[0].num_stops == (0 if operation == "start" else 1)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_missing_key_or_sdk_is_said_when_it_is_built(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, keys = BUILDERS[name]
    for variable in keys:
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(SandboxError, match=f"environment variable {next(iter(keys))}"):
        build()
    for variable in keys:
        monkeypatch.setenv(variable, "secret-value")
    monkeypatch.setitem(sys.modules, name, None)  # makes `import` fail
    with pytest.raises(SandboxError, match=rf"turnwise\[{name}\]") as raised:
        build()
    assert "secret-value" not in str(raised.value)


def test_there_are_no_sessions_and_nothing_after_close(machines: Any) -> None:
    async def scene() -> None:
        sandbox = build_e2b_sandbox()
        with pytest.raises(SandboxError, match="no live python sessions"):
            await sandbox.open()
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(SandboxError, match="closed"):
            await sandbox.run(Program(code=""))

    asyncio.run(scene())
