"""Our environments as tools of a server: the desk by itself, and clients that play over both transports."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from panel import PanelFamily

from turnwise.core.types import ImagePart, Message, Task, TextPart
from turnwise.environments.mcp.episodes import EpisodeDesk
from turnwise.pictures.pixels import to_part
from turnwise.pictures.read import read_picture
from turnwise.testing.notes import Notes, NotesFamily

PROGRAM = [
    sys.executable,
    "-c",
    "from turnwise.cli.main import main; main()",
    "mcp",
    "turnwise.testing.notes:NotesFamily",
]


def desk(**options: Any) -> EpisodeDesk:
    return EpisodeDesk(NotesFamily(linked=1.0), split="heldout", **options)


def read(result: dict[str, Any]) -> Any:
    """What a result says: its structured content, or its text."""
    return result.get("structuredContent") or result["content"][0]["text"]


async def solve(call: Any) -> dict[str, Any]:
    """Play task 0 of the notes to its end, by reading only what the tools answer."""
    opened = read(await call("open_episode", {"index": 0}))
    name, word = opened["episode"], opened["task"].split()[-1]
    note = read(await call("search", {"episode": name, "query": word}))
    while note.startswith("see"):
        note = read(await call("search", {"episode": name, "query": note.split()[-1]}))
    # The notes have no form of an answer of their own, so it is written as their reward reads it.
    return read(await call("submit_answer", {"episode": name, "answer": f"<answer> {note.split()[-1]} </answer>"}))


def test_an_episode_is_played_to_its_reward():
    assert asyncio.run(solve(desk().call)) == {"reward": 1.0, "parts": {"success": 1.0}}


def test_the_tools_name_their_episode():
    tools = {tool["name"]: tool for tool in asyncio.run(desk().list_tools())}
    assert list(tools) == ["open_episode", "search", "submit_answer"]
    assert tools["search"]["inputSchema"]["required"] == ["episode", "query"]
    assert tools["search"]["description"] == "Read a note."


def test_episodes_are_apart_and_end_with_their_answer():
    async def run() -> None:
        table = desk()
        first, second = [read(await table.call("open_episode", {}))["episode"] for _ in range(2)]
        assert first != second
        ended = await table.call("submit_answer", {"episode": first, "answer": "wrong"})
        assert read(ended) == {"reward": 0.0, "parts": {"success": 0.0}}
        again = await table.call("search", {"episode": first, "query": "amber"})
        assert again["isError"]
        assert "no open episode 'e1'" in read(again)
        assert not (await table.call("search", {"episode": second, "query": "amber"}))["isError"]

    asyncio.run(run())


class Counting(Notes):
    """Its one tool counts slowly, which steps at one time would do wrong."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        self.count = 0
        return task.prompt, [self.add]

    async def add(self) -> str:
        """Count."""
        before = self.count
        await asyncio.sleep(0)
        self.count = before + 1
        return str(self.count)


class CountingFamily(NotesFamily):
    def build_environment(self, task: Task) -> Notes:
        return Counting(tool_timeout_s=10.0, max_observation_chars=100)


def test_calls_that_a_client_makes_side_by_side_are_steps_one_after_the_other():
    async def run() -> None:
        table = EpisodeDesk(CountingFamily(), split="heldout")
        opened = await asyncio.gather(*(table.call("open_episode", {}) for _ in range(2)))
        assert read(opened[0])["task"] != read(opened[1])["task"]  # the next task for each
        name = read(opened[0])["episode"]
        counted = await asyncio.gather(*(table.call("add", {"episode": name}) for _ in range(3)))
        assert [read(each) for each in counted] == ["1", "2", "3"]
        answer = {"episode": name, "answer": "7"}
        first, second = await asyncio.gather(*(table.call("submit_answer", answer) for _ in range(2)))
        assert read(first)["reward"] == 0.0
        assert "ended by an earlier call" in read(second)
        await table.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search", {"query": "amber"}, "no open episode ''"),
        ("open_episode", {"index": "two"}, "index='two' is not a task number"),
        ("open_episode", {"index": -1}, "the index must be at least 0"),
    ],
)
def test_a_wrong_call_is_a_result_that_says_so(name: str, arguments: dict[str, Any], message: str):
    result = asyncio.run(desk().call(name, arguments))
    assert result["isError"]
    assert message in read(result)


def test_an_episode_ends_after_its_turns_and_the_oldest_when_there_are_too_many():
    async def run() -> None:
        table = desk(max_turns=2, max_open=1)
        name = read(await table.call("open_episode", {}))["episode"]
        await table.call("search", {"episode": name, "query": "amber"})
        last = read(await table.call("search", {"episode": name, "query": "amber"}))
        assert last["reward"] == 0.0
        assert "observation" in last
        old, new = [read(await table.call("open_episode", {}))["episode"] for _ in range(2)]
        assert (await table.call("search", {"episode": old, "query": "a"}))["isError"]
        assert not (await table.call("search", {"episode": new, "query": "a"}))["isError"]
        await table.close()

    asyncio.run(run())


def test_an_environment_that_asks_in_several_conversations_is_played_in_any_order():
    async def run() -> None:
        table = EpisodeDesk(PanelFamily(), split="train")
        tools = {tool["name"]: tool["inputSchema"] for tool in await table.list_tools()}
        assert list(tools) == ["open_episode", "look", "reply"]
        assert list(tools["look"]["properties"]) == ["episode", "conversation"]
        assert tools["reply"]["required"] == ["episode", "text"]
        opened = read(await table.call("open_episode", {}))
        assert [(ask["conversation"], ask["role"], ask["text"]) for ask in opened["asks"]] == [
            ("left", "left", "left?"),
            ("right", "right", "right?"),
        ]
        assert [[tool["name"] for tool in ask["tools"]] for ask in opened["asks"]] == [[], ["look"]]
        right, left = {"episode": "e1", "conversation": "right"}, {"episode": "e1"}
        assert read(await table.call("look", right)) == {"observations": [], "asks": []}
        wrong = await table.call("reply", {**left, "conversation": "middle", "text": "1"})
        assert (wrong["isError"], read(wrong)) == (
            True,
            "no reply is expected in conversation 'middle', only in left",
        )
        shown = read(await table.call("reply", {**left, "text": "1"}))
        assert shown["observations"] == [{"conversation": "left", "text": "left said 1"}]
        assert [(ask["conversation"], ask["text"]) for ask in shown["asks"]] == [("right", "right: say 3")]
        assert read(await table.call("reply", {**right, "text": "3"})) == {
            "rewards": {"left": {"reward": 1.0, "parts": {}}, "right": {"reward": 3.0, "parts": {}}},
            "observations": [{"conversation": "right", "text": "right said 3"}],
        }
        assert "no open episode 'e1'" in read(await table.call("reply", {**right, "text": "3"}))
        await table.close()

    asyncio.run(run())


def test_a_request_past_its_deadline_says_so_and_ends_the_episode():
    async def run() -> None:
        table = EpisodeDesk(PanelFamily(), split="train", timeout_s=0.05)
        await table.call("open_episode", {})
        late = await table.call("reply", {"episode": "e1", "text": "hang"})
        assert (late["isError"], read(late)) == (True, "reply took longer than 0.05 s")
        assert "no open episode 'e1'" in read(await table.call("reply", {"episode": "e1", "text": "1"}))

    asyncio.run(run())


def sdk_caller(session: Any) -> Any:
    async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await session.call_tool(name, arguments)
        return json.loads(result.model_dump_json(by_alias=True, exclude_none=True))

    return call


@pytest.mark.slow
def test_a_client_of_the_sdk_plays_over_stdio():
    mcp: Any = pytest.importorskip("mcp")
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    server = mcp.StdioServerParameters(command=PROGRAM[0], args=PROGRAM[1:], env=environment)

    async def run() -> dict[str, Any]:
        async with asyncio.timeout(60), mcp.stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            assert "search" in [tool.name for tool in (await session.list_tools()).tools]
            return await solve(sdk_caller(session))

    assert asyncio.run(run())["reward"] == 1.0


@pytest.mark.slow
def test_our_own_client_plays_over_http_and_strangers_are_refused():
    pytest.importorskip("mcp")
    import httpx

    from turnwise.tools.mcp.servers import McpServer
    from turnwise.tools.mcp.session import McpSession

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([*PROGRAM, "--http", "0"], stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        url = server.stderr.readline().strip()

        async def run() -> dict[str, Any]:
            session = McpSession(McpServer(url=url), "ours")
            async with asyncio.timeout(60):
                await session.open(30)
                reward = await solve(session.call)
                await session.close()
                return reward

        try:
            assert url.startswith("http://127.0.0.1:")
            assert asyncio.run(run())["reward"] == 1.0
            assert httpx.post(url, headers={"host": "rebinding.example"}, json={}).status_code == 421
        finally:
            server.terminate()


PAGE, CROP = (to_part(np.full((2, width, 3), width, np.uint8)) for width in (4, 3))


class Looks(Notes):
    """Opens with a picture; its tool returns a part of it."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        return (Message(role="user", content=(TextPart(text="page "), PAGE)),), (self.look,)

    def look(self) -> ImagePart:
        """Look closer."""
        return CROP


class LooksFamily(NotesFamily):
    def build_environment(self, task: Task) -> Looks:
        return Looks()


def test_pictures_follow_the_text_that_names_them() -> None:
    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        table = EpisodeDesk(LooksFamily(), split="heldout")
        opened = await table.call("open_episode", {})
        return opened, await table.call("look", {"episode": read(opened)["episode"]})

    opened, looked = asyncio.run(run())
    assert read(opened)["task"] == f"page [picture 4x2 {PAGE.digest[:12]}]"
    assert looked["content"][0]["text"].strip() == f"[picture 3x2 {CROP.digest[:12]}]"
    for result, part in ((opened, PAGE), (looked, CROP)):
        [shown] = result["content"][1:]
        assert (shown["type"], shown["mimeType"]) == ("image", "image/png")
        assert read_picture(base64.b64decode(shown["data"])) == part
