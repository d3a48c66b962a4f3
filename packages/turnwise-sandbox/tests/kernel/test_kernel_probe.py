import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel import probe
from turnwise_sandbox.kernel.probe import Capabilities, best_level

EVERYTHING: dict[str, Any] = {
    "direct_namespaces": True,
    "user_namespaces": True,
    "first_uid": 1 << 31,
    "num_uids": 1 << 31,
    "landlock_abi": 7,
    "seccomp": True,
    "has_children_file": True,
}


@pytest.mark.parametrize(
    ("lacking", "level"),
    [
        ({}, "full"),
        ({"direct_namespaces": False}, "full"),  # through a user namespace
        ({"user_namespaces": False}, "full"),  # by privilege
        ({"landlock_abi": 0}, "full"),  # namespaces hold without it
        ({"direct_namespaces": False, "user_namespaces": False}, "uid"),
        ({"direct_namespaces": False, "user_namespaces": False, "first_uid": None}, "process"),
        ({"direct_namespaces": False, "user_namespaces": False, "landlock_abi": 0}, "seccomp"),
        ({"direct_namespaces": False, "user_namespaces": False, "first_uid": None, "has_children_file": False}, "none"),
        (
            {"direct_namespaces": False, "user_namespaces": False, "has_children_file": False},
            "uid",
        ),  # whose programs have a user id each
        ({"seccomp": False}, "none"),
    ],
)
def test_the_level_is_the_strongest_that_works(lacking, level):
    capabilities = Capabilities(**{**EVERYTHING, **lacking})
    assert best_level(capabilities) == level
    assert level not in capabilities.reasons


def test_reasons_say_what_failed():
    failures = {
        "direct_namespaces": "[Errno 1] clone",
        "user_namespaces": "[Errno 28] clone",
        "other_uid": "[Errno 1] setgroups",
    }
    lacking = {"direct_namespaces": False, "user_namespaces": False, "first_uid": None, "failures": failures}
    capabilities = Capabilities(**{**EVERYTHING, **lacking})
    assert capabilities.reasons == {
        "full": "direct_namespaces: [Errno 1] clone; user_namespaces: [Errno 28] clone",
        "uid": "other_uid: [Errno 1] setgroups",
    }
    with pytest.raises(SandboxError, match="setgroups"):
        capabilities.cell_uid(0)


def test_cells_get_user_ids_of_their_own():
    capabilities = Capabilities(**EVERYTHING)
    uids = {capabilities.cell_uid(index) for index in range(512)}
    assert len(uids) == 512
    assert all((1 << 31) <= uid < (1 << 32) - 1 for uid in uids)  # 2**32 - 1 means "no change" to the kernel
    small = Capabilities(**{**EVERYTHING, "first_uid": 20_000, "num_uids": 40_000})
    assert all(20_000 <= small.cell_uid(index) < 60_000 for index in range(512))


def test_this_machine_is_probed_by_doing():
    capabilities = probe.probe()
    assert set(capabilities.failures) <= {"direct_namespaces", "user_namespaces", "other_uid", "landlock", "seccomp"}
    assert capabilities.seccomp is ("seccomp" not in capabilities.failures)
    assert capabilities.user_namespaces is ("user_namespaces" not in capabilities.failures)
    # The probe leaves nothing behind.
    assert not [name for name in os.listdir("/tmp") if name.startswith("turnwise-root")]
    with open("/proc/self/mounts") as mounts:
        assert "turnwise-root" not in mounts.read()


@pytest.fixture
def plain_python() -> str:
    """An interpreter that a user without privileges can run."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.exists(path):
            version = subprocess.run(
                [path, "-c", "import sys; sys.stdout.write(str(sys.version_info >= (3, 11)))"], capture_output=True
            )
            if version.stdout == b"True":
                return path
    pytest.skip("no system Python of at least 3.11")


def run_probe(python, before, **options):
    source = str(Path(probe.__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {source!r})\n{before}\nfrom turnwise_sandbox.kernel import probe\n"
    code += (
        "c = probe.Capabilities(**probe._capabilities())\nsys.stdout.write(probe.best_level(c) + ' ' + str(c.failures))"
    )
    done = subprocess.run([python, "-B", "-c", code], capture_output=True, text=True, cwd="/", timeout=60, **options)
    assert done.stderr == ""
    return done.stdout


def test_a_plain_user_gets_the_full_level_through_a_user_namespace(as_root, plain_python):
    here = probe.probe()
    if not here.user_namespaces:
        pytest.skip(f"no user namespaces here: {here.failures['user_namespaces']}")
    answer = run_probe(plain_python, "", user=65534, group=65534, extra_groups=[])
    assert answer.startswith("full ")
    assert "direct_namespaces" in answer


NO_NAMESPACES = """
import ctypes
from turnwise_sandbox.kernel import seccomp, syscalls
syscalls.set_no_new_privileges()
allow, refuse = (0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050001)
import struct, os
numbers = [syscalls.NUMBERS[name] for name in ('unshare', 'mount', 'open_tree')]
code = [(0x20, 0, 0, 0)] + [(0x15, len(numbers) - i + 4, 0, n) for i, n in enumerate(numbers)]
code += [(0x15, 0, 3, syscalls.NUMBERS['clone']), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7e020000), refuse, allow, refuse]
code[1:1 + len(numbers)] = [(0x15, len(code) - 2 - 1 - i, 0, n) for i, n in enumerate(numbers)]
seccomp.install_filter(b''.join(struct.pack('HBBI', *row) for row in code))
"""
"""Installs a filter that refuses namespaces and mounts, as a container runtime's does."""


def test_a_container_without_namespaces_gets_a_user_id_per_cell(as_root, plain_python):
    answer = run_probe(plain_python, NO_NAMESPACES)
    assert answer.startswith("uid ")
    assert "user_namespaces" in answer


def test_a_restricted_container_gets_the_process_level(as_root, plain_python):
    answer = run_probe(plain_python, NO_NAMESPACES, user=65534, group=65534, extra_groups=[])
    assert answer.startswith("process ")
    assert "other_uid" in answer
