"""Tools of ours over HTTP: to a client like Verl-Tool's, to our own family, and to nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Message, Scored, StopReason, ToolCall, text_message
from turnwise.environments.registry import load_family
from turnwise.testing.notes import NotesFamily
from turnwise_adapters.runs.tool_server import from_family
from turnwise_adapters.verl_tool.family import VerlToolTasks
from turnwise_adapters.verl_tool.serving import ActionServer
from turnwise_adapters.verl_tool.trajectories import Trajectories

PROGRAM = [sys.executable, "-c", "from turnwise.cli.main import main; main()", "tools", "serve"]
SEARCH = {"search": {"action": "<search>{query}</search>", "description": "Read a note.", "extra": ["index"]}}


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, Trajectories]]:
    """The notes, served in this process."""
    trajectories = Trajectories(from_family(NotesFamily(linked=0.0), "heldout"))
    server = ActionServer(trajectories.observe, lambda: {"tools": ["search"]})
    try:
        yield await server.start(), trajectories
    finally:
        await server.close()
        await trajectories.close()


def post(*bodies: Any, path: str = "", **headers: str) -> list[tuple[int, Any]]:
    """Status and answer of some requests; texts are sent as they are."""

    async def run() -> list[tuple[int, Any]]:
        async with serving() as (url, _), httpx.AsyncClient() as client:
            answers = []
            for body in bodies:
                content = body if isinstance(body, str | bytes) else json.dumps(body)
                answer = await client.post(url + path, content=content, headers=headers)
                answers.append((answer.status_code, answer.json()))
            return answers

    return asyncio.run(run())


def request(*actions: str, finish: bool = False) -> dict[str, Any]:
    """As Verl-Tool's agent loop sends it."""
    return {
        "trajectory_ids": [f"t{place}" for place in range(len(actions))],
        "actions": list(actions),
        "finish": [finish] * len(actions),
        "is_last_step": [finish] * len(actions),
    }


def test_a_batch_is_answered_in_order_with_the_columns_of_the_protocol():
    note = NotesFamily(linked=0.0).task("heldout", 0).prompt[0].text.split()[-1]
    batch = request(f"<search>{note}</search>", "what?", "<search>nowhere</search>")
    (status, answer), (_, end) = post(batch, request("", finish=True))
    assert status == 200
    code = NotesFamily(linked=0.0).task("heldout", 0).payload["answer"]
    assert answer["observations"] == [
        f"\n<information>\ncode {code}\n</information>\n",
        {"obs": "", "invalid_reason": "the action calls no tool; this server has search"},
        "\n<information>\nnothing\n</information>\n",
    ]
    assert answer["dones"] == [False] * 3
    assert answer["valids"] == [True, False, True]
    assert end["observations"] == [""]
    assert end["dones"] == [True]


def test_a_bad_request_is_refused_and_the_next_one_is_served():
    answers = post("{", {"trajectory_ids": ["a"], "actions": []}, request("what?"))
    assert [status for status, _ in answers] == [400, 400, 200]
    assert answers[0][1] == {"detail": "the body is not JSON"}


def test_other_paths_large_bodies_and_pages_of_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch):
    assert post(request("x"), path="/more")[0][0] == 404
    assert post(request("x"), host="rebinding.example")[0][0] == 403
    assert post(request("x"), origin="https://evil.example")[0][0] == 403
    assert post(request("x"), origin="http://localhost:3000")[0][0] == 200
    monkeypatch.setattr("turnwise_adapters.verl_tool.serving.MAX_BODY_BYTES", 1000)
    assert post(request("x" * 1000))[0][0] == 413


def test_a_taken_port_is_named():
    async def run() -> None:
        async with serving() as (url, _):
            port = httpx.URL(url).port
            assert port is not None
            with pytest.raises(EnvironmentFault, match=f"port {port} of 127.0.0.1"):
                await ActionServer(Trajectories(from_family(NotesFamily(), "train")).observe, dict).start(port)

    asyncio.run(run())


def tasks(folder: Path, url: str, **arguments: Any) -> VerlToolTasks:
    note = NotesFamily(linked=0.0).task("heldout", 0)
    rows = [
        {
            "question": note.prompt[0].text,
            "answer": note.payload["answer"],
            "calls": [["search", {"query": note.prompt[0].text.split()[-1]}]],
            "bind": {"index": 0},
        }
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    servers = {"notes": {"url": url, "tools": SEARCH}}
    return VerlToolTasks(**{"servers": servers, "train_path": str(path), "heldout_path": str(path), **arguments})


async def play(family: VerlToolTasks) -> tuple[list[str], float]:
    """What the tools answer to the row's call and to a wrong one, and the reward of the row's answer."""
    task = family.task("heldout", 0)
    environment = family.build_environment(task)
    try:
        opening = await environment.reset(task, 0)
        assert [(tool.name, list(tool.parameters["properties"])) for tool in opening.tools] == [("search", ["query"])]
        texts = []
        for query in (task.payload["calls"][0][1]["query"], "</search><search>"):
            call = ToolCall(id="c", name="search", arguments=json.dumps({"query": query}))
            result = await environment.step(Message(role="assistant", content=(), tool_calls=(call,)))
            texts += [message.text for message in result.observations]
        answer = text_message("assistant", f"<answer> {task.payload['answer']} </answer>")
        reward = await environment.score([answer], StopReason.DONE)
        assert isinstance(reward, Scored)
        return texts, reward.total
    finally:
        await environment.close()


@pytest.mark.parametrize("scope", ["episode", "run"])
def test_our_family_plays_with_our_server_and_leaves_no_trajectory(tmp_path: Path, scope: str):
    async def run() -> None:
        async with serving() as (url, trajectories):
            family = tasks(tmp_path, url, scope=scope)
            texts, reward = await play(family)
            assert texts[0].startswith("<information>\ncode ")
            assert texts[1] == "<information>\nnothing\nnothing\n</information>"  # two calls, for it closed the first
            assert reward == 1.0
            assert trajectories.num_open == (0 if scope == "episode" else 1)

    asyncio.run(run())


def test_a_family_without_a_server_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="has no tool server"):
        tasks(tmp_path, "http://127.0.0.1:1/get_observation", servers={})
    with pytest.raises(ConfigError, match="is not an HTTP address"):
        load_family("verl_tool", {"servers": {"x": {"url": "here", "tools": SEARCH}}})


@contextmanager
def program(*arguments: str) -> Iterator[str]:
    """The URL of `turnwise tools serve` in a process of its own; it ends with status 0 when it is told to."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*PROGRAM, *arguments, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            url = process.stderr.readline().strip()
            assert url.startswith("http://127.0.0.1:"), url + process.stderr.read()
            yield url
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_the_sandboxs_tools_are_served_by_the_command():
    with program("python", "bash", "--timeout-s", "4") as url, httpx.Client(timeout=60) as client:

        def send(*actions: str, finish: bool = False) -> Any:
            return client.post(url, json=request(*actions, finish=finish)).json()

        assert client.get(url.replace("get_observation", "health")).json()["tools"] == ["python", "bash"]
        send("<python>x = 6</python>", "<python>x = 1</python>")
        kept = send("<python>x * 7</python>", "```bash\necho $((3 + 4))\n```", "<python>x</python>")
        assert kept["observations"][:2] == ["\n<output>\n42\n</output>\n", "\n```output\n7\n```\n"]
        assert "NameError" in kept["observations"][2]
        assert kept["valids"] == [True] * 3
        endless = send("<python>while True: pass</python>")
        assert "ran longer than 2 s" in endless["observations"][0]
        send("", finish=True)
        assert "NameError" in send("<python>x</python>")["observations"][0]
    with pytest.raises(httpx.ConnectError):
        httpx.post(url, json={})


@pytest.mark.slow
def test_our_family_plays_with_the_command_of_an_environment(tmp_path: Path):
    with program("turnwise.testing.notes:NotesFamily", "--split", "heldout") as url:
        texts, reward = asyncio.run(play(tasks(tmp_path, url)))
    assert texts[0].startswith("<information>\n")
    assert reward == 1.0
