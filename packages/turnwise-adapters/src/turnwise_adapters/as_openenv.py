"""Exports a Turnwise family as an OpenEnv server."""

from __future__ import annotations

import asyncio
from typing import Any

from turnwise.core.packages import require_package
from turnwise.core.protocols import EnvironmentFamily, Split
from turnwise_adapters.outward import OutwardEpisode, describe_tools, join_texts, read_reply


def to_openenv(
    family: EnvironmentFamily, *, split: Split = "train", max_turns: int = 16, max_sessions: int = 64
) -> Any:
    """Return an OpenEnv application (FastAPI) that uvicorn serves: `app = to_openenv(family)`, then `uvicorn
    module:app`.

    A session plays one task per episode, the split's task at `seed`. The action's field `text` is a reply: a JSON
    object `{"name": ..., "arguments": {...}}` calls a tool, any other text is a message. An observation has the `text`
    of the new messages, and after a reset the `tools` as JSON. The reward comes with the last step. If an environment
    asks in several conversations, `metadata` says whose turn it is. Raises ConfigError without openenv.
    """
    require_package("openenv", "0.10", "openenv")
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Reply(Action):  # type: ignore[misc] # Any where openenv is missing
        """The player's reply: text or a call."""

        text: str

    class Told(Observation):  # type: ignore[misc]
        """What the player reads."""

        text: str
        tools: str = ""

    class FamilyServer(Environment):  # type: ignore[misc]
        """One session."""

        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._episode = OutwardEpisode(family, split=split, max_turns=max_turns)
            self._task_id: str | None = None
            self._loop: asyncio.AbstractEventLoop | None = None

        async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Told:
            self._loop = asyncio.get_running_loop()
            task, opening = await self._episode.open(seed or 0)
            self._task_id = episode_id or task.id
            return Told(
                text=join_texts(opening.messages),
                tools=describe_tools(opening.tools),
                metadata=dict(self._episode.voice),
            )

        async def step_async(self, action: Reply, timeout_s: float | None = None, **_: Any) -> Told:
            episode = self._episode
            text = await episode.reply(read_reply(action.text, episode.num_replies))
            if not episode.is_done and not episode.is_truncated:
                return Told(text=text, metadata=dict(episode.voice))
            reward = await episode.score()
            return Told(text=text, done=True, reward=reward.total, metadata={p.name: p.value for p in reward.parts})

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Told:
            raise NotImplementedError("the server calls reset_async")

        def step(self, action: Reply, timeout_s: float | None = None, **_: Any) -> Told:
            raise NotImplementedError("the server calls step_async")

        def close(self) -> None:
            """Free the episode; the server calls this in a separate thread when the session ends."""
            if self._loop is not None and not self._loop.is_closed():
                asyncio.run_coroutine_threadsafe(self._episode.close(), self._loop)

        @property
        def state(self) -> State:
            return State(episode_id=self._task_id, step_count=self._episode.num_replies)

    return create_fastapi_app(FamilyServer, Reply, Told, max_concurrent_envs=max_sessions)
