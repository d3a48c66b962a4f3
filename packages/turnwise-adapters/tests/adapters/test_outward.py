"""An environment that asks in several conversations behind an interface that resets and steps."""

from __future__ import annotations

import asyncio

import pytest
from panel import PanelFamily

from turnwise.core.errors import EnvironmentFault
from turnwise.core.types import Scored
from turnwise_adapters.outward import OutwardEpisode, join_texts, read_reply


def test_what_was_asked_first_is_shown_and_the_next_reply_is_its_answer() -> None:
    async def run() -> None:
        episode = OutwardEpisode(PanelFamily(), split="train", max_turns=3)
        _, opening = await episode.open(0)
        assert (join_texts(opening.messages), episode.voice["role"]) == ("left?", "left")
        assert await episode.reply(read_reply("1", 0)) == "left said 1\n\nright?"
        assert (episode.voice["conversation"], "look" in episode.voice["tools"]) == ("right", True)
        assert await episode.reply(read_reply('{"name": "look", "arguments": {}}', 1)) == "right: say 3"
        assert await episode.reply(read_reply("3", 2)) == "right said 3"
        assert (episode.is_done, episode.is_truncated, episode.voice) == (True, False, {})
        assert await episode.score() == Scored(total=1.0)  # the first role's, of several
        await episode.close()

    asyncio.run(run())


def test_an_episode_that_broke_is_over_until_the_next_reset() -> None:
    async def run() -> None:
        family = PanelFamily()
        episode = OutwardEpisode(family, split="train", max_turns=3)
        await episode.open(0)
        with pytest.raises(EnvironmentFault, match="out of luck"):
            await episode.reply(read_reply("crash", 0))
        with pytest.raises(EnvironmentFault, match="call reset"):
            await episode.reply(read_reply("1", 1))
        await episode.open(0)
        assert (episode.num_replies, [panel.num_closed for panel in family.built]) == (0, [1, 0])

    asyncio.run(run())
