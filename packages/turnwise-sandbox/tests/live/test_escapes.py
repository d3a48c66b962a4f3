"""Runs every attempt to break out, in every world that this machine can imitate, against targets on the host.

A level fails if an attempt breaks a property that it claims or that every level must hold. The table of worlds says
which properties each must claim at least. Another test shows that the same attempts succeed without isolation."""

import errno
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from escape_probes import BY_NAME, PROBES

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Limits, Program

EVERYWHERE = {"net", "vsock", "ptrace", "ipc", "privileges", "mem_proc", "cpu", "kill_tree"}
WITH_LANDLOCK = EVERYWHERE | {"fs_read", "fs_write", "cross_exec", "abstract_unix", "signals"}
FULL = WITH_LANDLOCK | {"fs_meta", "unix_path", "disk_total"}

WORLDS = {
    # world: expected level, properties it must claim, with cgroups, with an interpreter that every user may run
    "root": ("full", FULL | {"pids", "mem_total"}, True, False),
    "setfcap": ("full", FULL, False, False),  # user id 0 without privileges, in a user namespace
    "user": ("full", FULL | {"pids"}, False, True),
    "docker": ("uid", WITH_LANDLOCK | {"fs_meta", "pids"}, False, True),
    "restricted": ("process", WITH_LANDLOCK, False, False),
    "userns_off": ("process", WITH_LANDLOCK, False, False),
    "no_landlock": ("seccomp", EVERYWHERE, False, False),
}


def answer(world, level, cage, python, *, cgroups=False, mode="slot", probes=PROBES, namespaces=True):
    request = {
        "world": world,
        "level": level,
        "mode": mode,
        "cgroups": cgroups,
        "namespaces": namespaces,
        "probes": [probe.name for probe in probes],
    }
    # The interpreter for all users has a copy of the tests beside it that all users can read.
    script = Path(python).parents[2] / "tests" / "escape_world.py"

    def join() -> None:
        for fd in cage.attach_fds() if cage else ():
            os.write(fd, b"0")

    done = subprocess.run(
        [python, str(script if script.exists() else Path(__file__).with_name("escape_world.py"))],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, "TURNWISE_CANARY_KEY": "key-of-the-host"},
        preexec_fn=join,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def failures(report, must_claim):
    """Missing claims, probes that broke a claim, and probes that did not run as written."""
    claims = set(report["claims"])
    wrong = [f"{name} is not claimed" for name in must_claim - claims]
    for name, result in report["results"].items():
        if "skipped" in result:
            continue
        if result["escaped"] and BY_NAME[name].property in claims | {"always"}:
            wrong.append(f"{name} broke {BY_NAME[name].property}: {result['escaped']}")
        held = "held" in result["text"] or result.get("signal") or result.get("limit")
        if not result["escaped"] and not held:
            wrong.append(f"{name} did not run: {result['text']}")
    return wrong


SLOW = ("setfcap", "user", "userns_off", "no_landlock")


@pytest.mark.parametrize(
    "world", [pytest.param(world, marks=pytest.mark.slow) if world in SLOW else world for world in WORLDS]
)
def test_a_level_holds_what_it_claims(world, as_root, cage, python, request):
    level, must_claim, cgroups, for_all_users = WORLDS[world]
    if cgroups and cage is None:
        cgroups, must_claim = False, must_claim - {"mem_total"}
    interpreter = request.getfixturevalue("plain_python") if for_all_users else python
    report = answer(world, "auto", cage, interpreter, cgroups=cgroups)
    assert report.get("error") is None
    assert report["level"] == level, report["reasons"]
    assert failures(report, must_claim) == []


@pytest.mark.slow
@pytest.mark.parametrize("level", ["process", "seccomp"])
def test_a_weaker_level_can_be_asked_for(level, as_root, cage, python):
    report = answer("root", level, cage, python, cgroups=cage is not None)
    assert report["level"] == level
    assert failures(report, EVERYWHERE if level == "seccomp" else WITH_LANDLOCK) == []


@pytest.mark.slow
def test_strict_mode_holds_as_much(as_root, cage, python):
    report = answer("root", "auto", cage, python, cgroups=cage is not None, mode="strict")
    assert report["level"] == "full"
    assert failures(report, FULL) == []


def test_nothing_is_run_where_nothing_isolates(as_root, cage, python):
    refused = answer("nothing", "auto", cage, python, probes=[])
    assert "nothing on this machine can isolate code" in refused["error"]
    assert "seccomp" in refused["error"]
    allowed = answer("nothing", "none", cage, python, probes=[BY_NAME["read_host_file"]])
    assert allowed["level"] == "none"
    assert allowed["results"]["read_host_file"]["escaped"]


def test_an_unavailable_level_is_refused(as_root, cage, python):
    refused = answer("restricted", "full", cage, python, probes=[])
    assert "level 'full' is unavailable" in refused["error"]
    assert "the best is 'process'" in refused["error"]


@pytest.mark.slow
def test_every_attempt_succeeds_without_isolation(as_root, cage, python):
    """Otherwise a probe with a mistake in it would look like a property that holds."""
    if cage is None:
        pytest.skip("attempts to exhaust memory and processes need a control group, and none can be made")
    report = answer("root", "bare", cage, python, cgroups=True)
    held = {
        name: result["text"]
        for name, result in report["results"].items()
        if not (result.get("escaped") or "skipped" in result)
    }
    # Features that this kernel was built without.
    missing = {name for name, text in held.items() if "[Errno 38]" in text or "[Errno 93]" in text}
    assert {name: text for name, text in held.items() if BY_NAME[name].control and name not in missing} == {}


def test_the_search_through_memory_finds_its_needle(sandbox, run):
    probe = BY_NAME["memory_of_the_previous_program"]
    execution = run(
        sandbox.run(Program(code=probe.before + "\n" + probe.code, files={"targets.json": b'{"numbers": {}}'}))
    )
    assert b"ESCAPED found at" in execution.stdout


LOOPBACK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), timeout=5)
server.accept()[0].sendall(b"hello")
print(client.recv(9))
try:
    socket.create_connection(("127.0.0.1", %d), timeout=1)
    print("reached the host")
except OSError as error:
    print(type(error).__name__)
for kind in ((2, 3, 1), (17, 3, 3), (16, 3, 0), (40, 1, 0)):
    try:
        socket.socket(*kind)
        print("opened", kind)
    except OSError:
        pass
try:
    socket.socket(2, 2).sendto(b"x", ("192.0.2.1", 9))
    print("sent")
except OSError as error:
    print(error.errno)
"""


def test_the_loopback_of_a_program_is_its_own(sandbox, run, full_level):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = LOOPBACK % server.getsockname()[1]
        execution = run(sandbox.run(Program(code=code, network="loopback"), Limits(wall_s=20)))
    assert execution.text() == f"{b'hello'!r}\nConnectionRefusedError\n{errno.ENETUNREACH}\n"


@pytest.mark.slow
def test_loopback_is_refused_if_it_would_be_the_hosts(run):
    async def work():
        async with LocalSandbox(num_slots=1, level="process") as weak:
            await weak.run(Program(code="", network="loopback"))

    with pytest.raises(SandboxError, match=r"needs a network namespace of its own|is unavailable"):
        run(work())
