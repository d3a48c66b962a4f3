"""Programs in bubblewrap: how they end, what they can see, and what they leave."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_outside

from turnwise_sandbox.bubblewrap import BubblewrapSandbox
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.types import Execution, Limits, Program


@functools.cache
def why_not() -> str | None:
    """Why bubblewrap cannot run on this machine; None if it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    try:
        execution = run("print(1)")
    except SandboxError as cause:
        return str(cause)
    return None if execution.ok else f"no Python in the sandbox: {execution.stderr[:200]!r}"


def run(
    code: str | bytes, limits: Limits | None = None, sandbox: BubblewrapSandbox | None = None, **fields: Any
) -> Execution:
    async def once() -> Execution:
        return await (sandbox or BubblewrapSandbox()).run(Program(code=code, **fields), limits or Limits())

    return asyncio.run(once())


@pytest.fixture
def bwrap() -> None:
    """Skips, with the reason, if bubblewrap cannot run."""
    if reason := why_not():
        pytest.skip(reason)


pytestmark = pytest.mark.usefixtures("bwrap")


def test_bytes_go_in_and_come_out() -> None:
    code = (
        "import os, sys\nos.makedirs('d')\nopen('d/o', 'wb').write(open('in/a', 'rb').read() + "
        "sys.stdin.buffer.read())\n"
        "print(sorted(os.listdir('.')), end='')\nsys.stderr.write('e')\nsys.exit(3)"
    )
    execution = run(code, stdin=b"\xfe\n", files={"in/a": b"\xff"}, outputs=("d/o", "missing"))
    assert (execution.stdout, execution.stderr, execution.exit_code, execution.limit) == (b"['d', 'in']", b"e", 3, None)
    assert execution.files == {"d/o": b"\xff\xfe\n"}
    assert execution.level == "bubblewrap"
    assert run("read x; echo got $x", language="bash", stdin=b"line\n").stdout == b"got line\n"


@pytest.mark.parametrize(
    ("code", "limits", "limit"),
    [
        ("print('began', flush=True)\nwhile True: pass", Limits(wall_s=0.4), "wall"),
        (
            "import signal\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
            Limits(wall_s=0.4),
            "wall",
        ),
        ("while True: print('x' * 4096)", Limits(output_bytes=10_000), "output"),
        ("bytearray(3 << 30)", Limits(), "memory"),
        ("for i in range(9): open(str(i), 'wb').write(b'0' * (1 << 20))", Limits(disk_bytes=4 << 20), "disk"),
        (
            "import os, time\nfor _ in range(100):\n  if os.fork() == 0: time.sleep(9); os._exit(0)",
            Limits(num_pids=20),
            "pids",
        ),
    ],
)
def test_limits_are_enforced_and_named(code: str, limits: Limits, limit: str) -> None:
    started = time.monotonic()
    execution = run(code, limits)
    assert execution.limit == limit
    assert not execution.ok
    assert len(execution.stdout) <= limits.output_bytes
    assert time.monotonic() - started < 4.0


def test_how_programs_die() -> None:
    assert run("import os; os.kill(os.getpid(), 11)").signal == 11
    assert b"SyntaxError" in run(b"x = '\xff'").stderr
    # A child that holds the pipes open does not delay the end.
    started = time.monotonic()
    orphan = run("import os, time\nif os.fork() == 0: time.sleep(60)\nprint('done')")
    assert (orphan.stdout, orphan.exit_code) == (b"done\n", 0)
    assert time.monotonic() - started < 4.0


def test_nothing_of_the_host_is_seen_or_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    tmp_path.chmod(0o755)
    monkeypatch.setenv("SOME_API_KEY", "k")
    with socket.create_server(("127.0.0.1", 0)) as server:
        attempts = {
            "file": f"open({str(secret)!r})",
            "shadow": "open('/etc/shadow')",
            "write": "open('/usr/x', 'w')",
            "program": "open('/run/program/main.py', 'a')",
            "network": f"__import__('socket').create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)",
            "parent": f"os.kill({os.getpid()}, 0)",
            "environment": "os.environ['SOME_API_KEY']",
            "mount": "ctypes.CDLL(None).mount(b't', b'/work', b'tmpfs', 0, None) == 0 or 1/0",
            "namespace": "ctypes.CDLL(None).unshare(0x10000000) == 0 or 1/0",
        }
        code = "import os, ctypes\n" + "".join(
            f"try:\n  {attempt}\n  print({name!r})\nexcept Exception: pass\n" for name, attempt in attempts.items()
        )
        execution = run(code)
    assert (execution.stdout, execution.exit_code) == (
        b"",
        0,
    )  # the program prints the name of each attempt that succeeds


def test_links_and_special_files_are_not_handed_out() -> None:
    code = (
        "import os\nos.symlink('/etc/hostname', 'link'); os.mkfifo('pipe'); os.mkdir('d')\n"
        "os.symlink('/', 'root'); open('ok', 'w').write('1')"
    )
    assert run(code, outputs=("link", "pipe", "d", "root/etc/hostname", "ok")).files == {"ok": b"1"}
    for path in ("../x", "/etc/passwd", ""):
        with pytest.raises(SandboxError, match="must be relative"):
            run("", outputs=(path,))
        with pytest.raises(SandboxError, match="must be relative"):
            run("", files={path: b""})


def test_seeds() -> None:
    code = "import random; print(random.random(), hash('a'))"
    assert run(code, seed=3).stdout == run(code, seed=3).stdout != run(code, seed=4).stdout


@pytest.fixture
def root() -> Iterator[Path]:
    """A small root file system whose programs are the host's, readable by every user."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        for name in ("etc", "tmp"):
            (root / name).mkdir()
        (root / "etc" / "here").write_text("foreign")
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                (root / name).symlink_to(os.readlink(f"/{name}"))
        yield root


def test_a_root_folder_replaces_the_hosts(root: Path) -> None:
    parts = ["/usr", *(path for path in ("/bin", "/lib", "/lib64") if not os.path.islink(path) and os.path.isdir(path))]
    sandbox = BubblewrapSandbox(root_folder=str(root), read_only=parts)
    execution = run("cat /etc/here; echo x > /etc/here", sandbox=sandbox, language="bash")
    assert execution.stdout == b"foreign"
    assert b"Read-only" in execution.stderr
    with pytest.raises(SandboxError, match="is not a folder"):
        BubblewrapSandbox(root_folder="/does/not/exist")
    with pytest.raises(SandboxError, match=r"could not build the sandbox: .*sh"):
        run("", sandbox=BubblewrapSandbox(root_folder=str(root)))
    root.chmod(0o700)
    if os.geteuid() == 0:
        with pytest.raises(SandboxError, match="user nobody must be able to read"):
            run("", sandbox=BubblewrapSandbox(root_folder=str(root)))


def test_cancelled_and_closed_programs_end_at_once() -> None:
    async def scene() -> None:
        sandbox = BubblewrapSandbox(max_concurrent=2)
        marker = "import time; time.sleep(54.321)"
        runs = [asyncio.create_task(sandbox.run(Program(code=marker), Limits(wall_s=60))) for _ in range(2)]
        await asyncio.sleep(0.4)
        runs[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await runs[0]
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(SandboxError, match="closed while the program was running"):
            await runs[1]
        with pytest.raises(SandboxError, match="is closed"):
            await sandbox.run(Program(code=""))

    num_open = len(os.listdir("/proc/self/fd"))
    asyncio.run(scene())
    assert len(os.listdir("/proc/self/fd")) <= num_open
    children = ["ps", "-o", "args", "--ppid", str(os.getpid())]
    wait_outside(lambda: b"bwrap" not in subprocess.run(children, capture_output=True, check=False).stdout)


def test_there_are_no_sessions() -> None:
    with pytest.raises(SandboxError, match="not support live bash sessions"):
        asyncio.run(BubblewrapSandbox().open("bash"))


def test_a_missing_bubblewrap_is_said() -> None:
    with pytest.raises(SandboxError, match="no 'no-such-bwrap' on PATH"):
        BubblewrapSandbox(bwrap="no-such-bwrap")
