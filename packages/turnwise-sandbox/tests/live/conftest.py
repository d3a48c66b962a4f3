"""Fixtures of the sandbox's tests: one sandbox for all tests of a process, a control group."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

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
def full_level(sandbox: LocalSandbox, run: Callable[..., Any]) -> None:
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


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to imitate the worlds of the probes")


@pytest.fixture
def python() -> str:
    return sys.executable
