"""A trajectory at a real server process that works, fails, dies, floods or hangs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import EnvironmentFault, ToolFailure
from turnwise_adapters.verl_tool.servers import ActionTool, VerlToolServer
from turnwise_adapters.verl_tool.session import TrajectorySession

SERVER = Path(__file__).parent / "hostile_tool_server.py"


@contextmanager
def serving(mode: str) -> Iterator[VerlToolServer]:
    with subprocess.Popen([sys.executable, "-S", str(SERVER), mode], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/get_observation"
            tools = {"run": {"action": "<run>{code}</run>", "extra": ["stdin"]}, "log": {"action": "<log></log>"}}
            yield VerlToolServer(url=url, tools=tools)  # type: ignore[arg-type]
        finally:
            process.kill()


def call(mode: str, *codes: str) -> tuple[list[str], bool]:
    """What the calls answer, and whether the session is over."""

    async def run() -> tuple[list[str], bool]:
        with serving(mode) as server:
            session = TrajectorySession(server, "lab")
            await session.open(10)
            try:
                async with asyncio.timeout(10):
                    results = [await session.call("run", {"code": code, "stdin": "5"}) for code in codes]
                return [result["content"][0]["text"] for result in results], session.is_over
            finally:
                await session.close()

    return asyncio.run(run())


def test_a_call_becomes_an_action_and_the_observation_its_result():
    assert call("fine", "good") == (['<run>good</run> {"stdin": "5"}'], False)


def test_an_action_that_the_server_finds_not_valid_is_the_models_failure():
    with pytest.raises(ToolFailure, match="the server found no valid action"):
        call("fine", "bad")


def test_a_server_may_end_the_trajectory():
    assert call("ends", "good") == (["bye"], True)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("dies", "'lab' did not answer: RemoteProtocolError"),
        ("floods", "sent an answer longer than 16777216 bytes"),
        ("fails", '\'lab\' answered with status 500: {"detail": "disk full"}'),
        ("babbles", "violates the protocol: the body is not JSON"),
        ("broken", "'lab' failed in 'run': no kernel"),
    ],
)
def test_a_server_that_misbehaves_is_a_fault_that_names_it(mode: str, message: str):
    with pytest.raises(EnvironmentFault, match=message):
        call(mode, "good")


def test_the_callers_deadline_ends_a_call_that_hangs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("turnwise_adapters.verl_tool.session.CLOSE_S", 0.3)

    async def run() -> None:
        with serving("hangs") as server:
            session = TrajectorySession(server, "lab")
            await session.open(10)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await session.call("run", {"code": "good", "stdin": ""})
            await session.close()

    started = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - started < 20


def test_a_trajectory_is_finished_once_and_only_if_it_began():
    async def run() -> Any:
        with serving("fine") as server:
            sessions = [TrajectorySession(server, "lab") for _ in range(3)]
            for session in sessions:
                await session.open(10)
            await sessions[0].call("run", {"code": "good", "stdin": ""})
            for session in (sessions[0], sessions[0], sessions[1]):
                await session.close()
            log = await sessions[2].call("log", {})
            await sessions[2].close()
            with pytest.raises(EnvironmentFault, match="used outside its session"):
                await sessions[2].call("log", {})
            return json.loads(log["content"][0]["text"])

    # The first request is not listed; after it comes the end of the trajectory that began, and the listing itself.
    assert [row[1:] for row in asyncio.run(run())] == [["", True], ["<log></log>", False]]


def test_a_server_that_is_not_there_or_mute_is_found_when_the_session_opens():
    async def open_session(server: VerlToolServer) -> None:
        await TrajectorySession(server, "lab").open(0.5)

    with serving("fine") as gone:
        pass
    with pytest.raises(EnvironmentFault, match=r"cannot be reached: ConnectError.*; start it"):
        asyncio.run(open_session(gone))
    with serving("mute") as mute, pytest.raises(EnvironmentFault, match=r"did not answer within 0\.5 s"):
        asyncio.run(open_session(mute))


def test_the_parameters_of_a_tool_are_those_of_its_action():
    tool = ActionTool(action='<tool_call>{{"name": "x"}}{code} {code} {more}</tool_call>', extra=["db", "code"])
    assert tool.parameters == ["code", "more", "db"]
    assert tool.to_wire("x")["inputSchema"]["required"] == ["code", "more", "db"]


@pytest.mark.parametrize("action", ["{", "{}", "{0}", "{a.b}", "{a[0]}"])
def test_an_action_that_is_no_template_is_refused(action: str):
    with pytest.raises(ValueError, match=r"write \{\{ and }} for braces"):
        ActionTool(action=action)


@pytest.mark.parametrize("fields", [{"url": "127.0.0.1:5000"}, {"url": "ftp://a/b"}, {"tools": {}}])
def test_a_server_needs_an_address_and_tools(fields: dict[str, Any]):
    with pytest.raises(ValueError, match=r"use http|set "):
        VerlToolServer(**{"url": "http://127.0.0.1:5000/get_observation", "tools": {"x": {"action": "x"}}, **fields})
