"""Fixtures of the sandbox's tests: one sandbox for all tests of a process, a control group, a shared interpreter."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import turnwise_sandbox
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel.cgroups import Cgroup, CgroupPool
from turnwise_sandbox.supervisor import LocalSandbox

T = TypeVar("T")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    """A sandbox at the best level of this machine, with two slots."""
    shared = LocalSandbox(num_slots=2)
    try:
        asyncio.run(shared.level())
    except SandboxError as error:
        pytest.skip(f"nothing isolates code on this machine: {error}")
    yield shared
    asyncio.run(shared.close())


@pytest.fixture(scope="session")
def run() -> Callable[[Awaitable[T]], T]:
    """Runs a coroutine in an event loop, for two minutes at most, so that a test that hangs fails."""

    def run_it(work: Awaitable[T]) -> T:
        async def limited() -> T:
            return await asyncio.wait_for(work, 120)

        return asyncio.run(limited())

    return run_it


@pytest.fixture
def full_level(sandbox: LocalSandbox, run: Callable[..., object]) -> None:
    level = run(sandbox.level())
    if level.name != "full":
        pytest.skip(f"needs level full: {level.reasons}")


@pytest.fixture(scope="session")
def cage() -> Iterator[Cgroup | None]:
    """A group with bounded memory and processes, for programs without isolation; None if no group can be made."""
    pool = CgroupPool.probe()
    group = pool.take(3 << 30, 800) if pool else None
    yield group
    if pool:
        pool.close()


@pytest.fixture(scope="session")
def plain_python() -> Iterator[str]:
    """An interpreter, with this package, that every user of the machine may run. Skips if the system has no Python of
    at least 3.11."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if not os.path.exists(path):
            continue
        version = subprocess.run(
            [path, "-c", "import sys; sys.stdout.write(str(sys.version_info >= (3, 11)))"], capture_output=True
        )
        if version.stdout != b"True":
            continue
        folder = tempfile.mkdtemp(prefix="turnwise-plain-python-")
        os.chmod(folder, 0o755)
        subprocess.run([path, "-m", "venv", "--without-pip", f"{folder}/venv"], check=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(turnwise_sandbox.__file__).parent, f"{folder}/turnwise_sandbox", ignore=ignored)
        shutil.copytree(Path(__file__).parent, f"{folder}/tests", ignore=ignored)
        for site in Path(folder, "venv/lib").glob("python3*/site-packages"):
            (site / "turnwise_sandbox.pth").write_text(folder)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield f"{folder}/venv/bin/python"
        shutil.rmtree(folder)
        return
    pytest.skip("no system Python of at least 3.11 that other users may run")


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to imitate the worlds of the probes")


@pytest.fixture
def python() -> str:
    return sys.executable
