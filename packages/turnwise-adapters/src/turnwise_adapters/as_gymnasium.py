"""Exports a Turnwise family as a Gymnasium environment whose observations and actions are text."""

from __future__ import annotations

import asyncio
import string
from typing import TYPE_CHECKING, Any

from turnwise.core.packages import require_package
from turnwise.core.protocols import EnvironmentFamily, Split
from turnwise_adapters.outward import OutwardEpisode, describe_tools, join_texts, read_reply

if TYPE_CHECKING:
    import gymnasium

NUM_TASKS = 2**20
"""Number of tasks from which a seed chooses if the family is endless."""


def to_gymnasium(family: EnvironmentFamily, *, split: Split = "train", max_turns: int = 16) -> gymnasium.Env[str, str]:
    """Return a `gymnasium.Env` that plays one task of the family per episode, chosen by the seed of `reset`.

    An action is a reply: a JSON object `{"name": ..., "arguments": {...}}` calls a tool, any other text is a message.
    An observation is the text of the new messages. The reward comes with the last step. Text outside printable ASCII is
    escaped, since the spaces must name their characters. If an environment asks in several conversations, `info` says
    whose turn it is. Raises ConfigError without gymnasium.
    """
    require_package("gymnasium", "1.0", "gymnasium")
    import gymnasium

    characters = string.printable
    text = gymnasium.spaces.Text(max_length=2**20, min_length=0, charset=characters)

    class FamilyEnv(gymnasium.Env[str, str]):  # type: ignore[misc] # Any where gymnasium is missing
        """One task at a time."""

        observation_space = text
        action_space = gymnasium.spaces.Text(max_length=2**16, min_length=0, charset=characters)
        metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as gymnasium.Env declares it

        def __init__(self) -> None:
            self._loop = asyncio.new_event_loop()
            self._episode = OutwardEpisode(family, split=split, max_turns=max_turns)

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            """Open a task; `info` has its id and the tools."""
            super().reset(seed=seed)
            index = int(self.np_random.integers(NUM_TASKS))
            task, opening = self._loop.run_until_complete(self._episode.open(index))
            return _escape(join_texts(opening.messages)), {
                "task": task.id,
                "tools": describe_tools(opening.tools),
                **self._episode.voice,
            }

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            """Send a reply. Raises EnvironmentFault before `reset`, and for an episode that could not be judged."""
            episode = self._episode
            observation = _escape(self._loop.run_until_complete(episode.reply(read_reply(action, episode.num_replies))))
            is_done, is_truncated = episode.is_done, episode.is_truncated
            if not is_done and not is_truncated:
                return observation, 0.0, False, False, dict(episode.voice)
            reward = self._loop.run_until_complete(episode.score())
            self._loop.run_until_complete(episode.close())
            return observation, reward.total, is_done, is_truncated, {part.name: part.value for part in reward.parts}

        def close(self) -> None:
            """Free the episode."""
            if not self._loop.is_closed():
                self._loop.run_until_complete(self._episode.close())
                self._loop.close()

    return FamilyEnv()


def _escape(text: str) -> str:
    return "".join(c if c in string.printable else c.encode("unicode_escape").decode() for c in text)
