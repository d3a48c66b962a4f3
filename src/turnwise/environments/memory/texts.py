"""Sample texts of what is read in parts, as the oracle plays it."""

from __future__ import annotations

from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.episodes import play_episode, run_apart

MAX_TURNS = 1000
"""Most replies of a conversation; an oracle needs few."""


def list_texts(family: EnvironmentFamily, count: int) -> list[str]:
    """`count` texts of training tasks as the oracle meets and says them: what is asked, and replies without tags."""
    return run_apart(_list_texts(family, count))


async def _list_texts(family: EnvironmentFamily, count: int) -> list[str]:
    oracle = family.policy("oracle")
    texts: list[str] = []
    index = 0
    while len(texts) < count:
        played = await play_episode(family, family.task("train", index), oracle, seed=0, max_turns=MAX_TURNS)
        for ask, reply in zip(played.asks, played.replies, strict=True):
            said = " ".join(word for word in reply.text.split() if not word.startswith("<"))
            texts += [*(f" {message.text.strip()}" for message in ask.messages), f" {said}"]
        index += 1
    return texts[:count]
