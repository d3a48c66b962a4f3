"""One sandbox over many event loops: opened once, usable from each, closed with its owner."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from pathlib import Path

import pytest
import stand_in_sandbox
from waiting import until

from turnwise.core.errors import ConfigError, SandboxError
from turnwise.environments.shared_sandbox import SharedSandbox, _Home, load_sandbox
from turnwise_sandbox.grading.channel import find_pair_runner
from turnwise_sandbox.types import Execution, Limits, Program

STAND_IN = "stand_in_sandbox:SubprocessSandbox"


@pytest.fixture(autouse=True)
def no_events() -> None:
    """Sandboxes that other tests left to the collector are closed first."""
    gc.collect()
    stand_in_sandbox.EVENTS.clear()


async def run_many(shared: SharedSandbox, count: int) -> list[bytes]:
    executions: list[Execution] = await asyncio.gather(
        *(shared.run(Program(code=f"print({n})"), Limits()) for n in range(count))
    )
    return [execution.stdout for execution in executions]


def test_one_sandbox_serves_loop_after_loop_and_is_closed_in_the_end() -> None:
    shared = SharedSandbox(load_sandbox(STAND_IN, {}))
    assert stand_in_sandbox.EVENTS == []  # nothing is opened before it is used
    for _ in range(2):
        # Four at a time wait at the stand-in's semaphore, which refuses a second event loop.
        assert asyncio.run(run_many(shared, 4)) == [b"0\n", b"1\n", b"2\n", b"3\n"]
    del shared
    gc.collect()
    assert stand_in_sandbox.EVENTS == ["open", "close"]


def test_closing_on_the_sandboxs_own_thread_does_not_wait_for_itself() -> None:
    home = _Home(load_sandbox(STAND_IN, {}))
    # The collector may run anywhere, also here.
    home._loop.call_soon_threadsafe(home.close)
    home._thread.join(5.0)
    assert not home._thread.is_alive()
    assert stand_in_sandbox.EVENTS == ["open", "close"]


def test_pairs_run_exactly_where_the_sandbox_behind_runs_them() -> None:
    worker, grader = Program(code="print(1)"), Program(code="print(2)")
    alone = SharedSandbox(load_sandbox(STAND_IN, {}))
    paired = SharedSandbox(load_sandbox("stand_in_sandbox:PairSandbox", {}))
    assert (find_pair_runner(alone), find_pair_runner(paired)) == (None, paired)
    assert [run.stdout for run in asyncio.run(paired.run_pair(worker, grader, Limits()))] == [b"1\n", b"2\n"]
    with pytest.raises(SandboxError, match="SubprocessSandbox cannot run pairs of programs; use the local sandbox"):
        asyncio.run(alone.run_pair(worker, grader, Limits()))


def test_a_channel_goes_only_to_programs_of_the_local_sandbox() -> None:
    shared = SharedSandbox(load_sandbox(STAND_IN, {}))
    ours, theirs = socket.socketpair()
    with ours:
        with pytest.raises(SandboxError, match="SubprocessSandbox cannot pass a channel to a program"):
            asyncio.run(shared.run_beside(Program(code="print(1)"), Limits(), theirs))
        assert theirs.fileno() == -1


def test_giving_up_ends_the_program(tmp_path: Path) -> None:
    began = tmp_path / "began"
    shared = SharedSandbox(load_sandbox(STAND_IN, {}))

    async def run() -> bytes:
        code = f"from pathlib import Path; Path({str(began)!r}).touch(); import time; time.sleep(60)"
        running = asyncio.create_task(shared.run(Program(code=code), Limits(wall_s=60.0)))
        await until(began.exists)
        running.cancel()
        await asyncio.wait([running])
        printed = (await shared.run(Program(code="print(1)"), Limits())).stdout
        await until(lambda: "kill" in stand_in_sandbox.EVENTS)  # on the sandbox's own loop
        return printed

    assert asyncio.run(run()) == b"1\n"
    assert stand_in_sandbox.EVENTS == ["open", "kill"]


def test_a_sandbox_that_cannot_be_opened_says_why_each_time() -> None:
    shared = SharedSandbox(load_sandbox(STAND_IN, {"refuse": True}))
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot isolate anything"):
            asyncio.run(run_many(shared, 1))


@pytest.mark.parametrize("name", ["docker", "no_such_module:Sandbox", "stand_in_sandbox:Other"])
def test_a_name_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"sandbox='{name}'"):
        load_sandbox(name, {})


class Opening:
    """A sandbox whose sessions take a while to open, and a session of it."""

    def __init__(self) -> None:
        self.open_sessions = 0

    async def open(self, language: str, **_: object) -> Opening:
        await asyncio.sleep(0.01)
        self.open_sessions += 1
        await asyncio.sleep(0.05)
        return self

    async def run(self, code: str, *, timeout_s: float | None = None) -> Execution:
        return Execution(stdout=f"{code} {id(asyncio.get_running_loop())}".encode(), stderr=b"", exit_code=0)

    async def close(self) -> None:
        self.open_sessions -= 1


def test_a_session_answers_on_every_loop_from_the_sandboxs_own() -> None:
    shared = SharedSandbox(lambda: Opening())  # type: ignore[arg-type, return-value]
    session = asyncio.run(shared.open())
    first, second = (asyncio.run(session.run("1")).stdout for _ in range(2))
    assert first == second
    asyncio.run(session.close())


def test_an_opening_that_is_given_up_leaves_no_session() -> None:
    class Kept(Opening):
        num_closed = 0

        async def close(self) -> None:
            self.num_closed += 1
            await super().close()

        async def open(self, language: str, **_: object) -> Opening:
            with contextlib.suppress(asyncio.CancelledError):  # as a sandbox that opens it all the same
                await asyncio.sleep(0.2)
            self.open_sessions += 1
            return self

    sandbox = Kept()
    shared = SharedSandbox(lambda: sandbox)  # type: ignore[arg-type, return-value]

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shared.open(), 0.05)
        await until(lambda: sandbox.num_closed)

    asyncio.run(give_up())
    assert sandbox.open_sessions == 0
