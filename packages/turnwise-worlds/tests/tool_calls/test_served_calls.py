"""The family behind the desk that serves environments as tools: its tools differ from task to task."""

import asyncio

from turnwise.environments.mcp.episodes import EpisodeDesk
from turnwise_worlds.tool_calls.family import ToolCalls


def test_tools_that_differ_by_task_come_with_the_episode():
    async def run() -> tuple[set[str], set[str]]:
        tables = EpisodeDesk(ToolCalls(prompt="chat"), split="heldout")
        opened = [(await tables.call("open_episode", {}))["structuredContent"] for _ in range(2)]
        listed = {tool["name"] for tool in await tables.list_tools()}
        return {tool["name"] for episode in opened for tool in episode["tools"]}, listed

    opened, listed = asyncio.run(run())
    assert opened <= listed
