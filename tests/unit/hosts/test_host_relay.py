"""What a Ray actor does on its node, without Ray."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from turnwise.core.errors import ConfigError
from turnwise.engines.workers import serving
from turnwise.hosts import relay
from turnwise.hosts.host import Program, import_path
from turnwise.hosts.leftovers import sweep
from turnwise.hosts.ray_cluster import check_folder, describe_end
from turnwise.hosts.relay import Relay

ECHO = """
import os, socket, sys
end = socket.socket(fileno=int(sys.argv[1]))
assert int(sys.argv[2]) == os.getppid()
print("hears", flush=True)
while data := end.recv(9):
    if data == b"end":
        sys.exit(3)
    end.sendall(data.upper())
"""


@pytest.fixture(autouse=True)
def _memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MEMORY", tmp_path)


@asynccontextmanager
async def open_relay() -> AsyncIterator[Relay]:
    actor = Relay()
    program = Program(
        name="echo",
        arguments=(sys.executable, "-c", ECHO),
        environment={},
        log=Path("/nowhere/echo.log"),
    )
    await actor.start(program)
    yield actor
    await actor.end()


def test_bytes_go_both_ways_and_the_end_is_told_with_the_log(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_relay() as actor:
            await actor.write(b"some ")
            assert await actor.read() == b"SOME "
            assert list(tmp_path.glob("turnwise-relay-*/echo.log"))
            await actor.write(b"end")
            assert await actor.read() == b""
            assert await actor.read_end() == (3, "hears")
            await actor.write(b"too late")
        assert not list(tmp_path.iterdir())

    asyncio.run(check())


def test_the_last_two_versions_and_everything_else_stay(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_relay() as actor:
            names = ["tokenizer", "1", "2", "3"]
            paths = [await actor.receive(name, {"file": np.frombuffer(name.encode(), np.uint8)}) for name in names]
            assert [path.exists() for path in paths] == [True, False, True, True]
            assert (paths[3] / "file").read_bytes() == b"3"
            mine = tmp_path / "mine"
            mine.mkdir()
            assert await actor.holds(mine, mine.stat().st_ino)
            assert not await actor.holds(mine, mine.stat().st_ino + 1)
            assert not await actor.holds(tmp_path / "other", 1)

    asyncio.run(check())


def test_what_killed_actors_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "turnwise-relay-999999999-x").mkdir()
    (tmp_path / "turnwise-relay-1-x").mkdir()
    sweep(tmp_path, "turnwise-relay-")
    assert [path.name for path in tmp_path.iterdir()] == ["turnwise-relay-1-x"]


def test_a_folder_that_is_too_long_for_rays_sockets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    # 107 bytes of a socket, less the 68 of /ray/session_2026-11-25_22-32-09_464848_4194304/sockets/plasma_store
    monkeypatch.setenv("RAY_TMPDIR", "/" + "x" * 38)
    check_folder()
    monkeypatch.setenv("RAY_TMPDIR", "/" + "x" * 39)
    with pytest.raises(ConfigError, match="too long a path for its sockets; set the environment variable RAY_TMPDIR"):
        check_folder()


def test_a_program_imports_what_its_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_the_script.py").write_text("WORD = 'found'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_path()["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)


def test_a_log_is_cut_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_LOG_BYTES", 100)
    monkeypatch.setattr(serving, "KEPT_LOG_BYTES", 10)
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as log:
        log.write(b"a" * 100)
        serving.cut_log(log.fileno())
        assert path.stat().st_size == 100
        log.write(b"the end")
        serving.cut_log(log.fileno())
        log.write(b", and on")
    assert path.read_bytes() == b"aaathe end, and on"


def test_of_an_actors_traceback_the_error_is_told() -> None:
    traceback = (
        "\x1b[36mray::Relay.start()\x1b[39m (pid=1, ip=10.0.0.1)\n"
        '  File "/opt/turnwise/hosts/local.py", line 78, in spawn\n'
        "    running = subprocess.Popen(\n"
        "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/python'\n"
    )
    told = describe_end(RuntimeError(traceback))
    assert told == "RuntimeError: FileNotFoundError: [Errno 2] No such file or directory: '/no/such/python'"
    lost = "The actor died unexpectedly.\n\tclass_name: Relay\nIts node has ended."
    assert describe_end(RuntimeError(lost)) == (
        "RuntimeError: The actor died unexpectedly. class_name: Relay Its node has ended."
    )
