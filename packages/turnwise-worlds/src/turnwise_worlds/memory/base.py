"""The base of the families of all memory styles."""

from __future__ import annotations

from turnwise.environments.arguments import Arguments
from turnwise.environments.episodes import play_episode, run_apart
from turnwise.environments.generated import GeneratedFamily

MAX_TURNS = 1000
"""Most replies of a conversation; an oracle needs few."""


class MemoryFamily(GeneratedFamily[Arguments]):
    """One style of memory."""

    name = "memory"

    def texts(self, count: int) -> list[str]:
        """Return `count` texts of training tasks played by the oracle: requests, and replies without tags."""
        return run_apart(self._play(count))

    async def _play(self, count: int) -> list[str]:
        oracle = self.policy("oracle")
        texts: list[str] = []
        index = 0
        while len(texts) < count:
            played = await play_episode(self, self.task("train", index), oracle, seed=0, max_turns=MAX_TURNS)
            for ask, reply in zip(played.asks, played.replies, strict=True):
                said = " ".join(word for word in reply.text.split() if not word.startswith("<"))
                texts += [*(f" {message.text.strip()}" for message in ask.messages), f" {said}"]
            index += 1
        return texts[:count]
