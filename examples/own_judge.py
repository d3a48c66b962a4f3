"""Your own judge, and an environment that asks it: PYTHONPATH=examples turnwise train examples/own_judge.toml"""

import re
from random import Random

COLOURS = ("red", "green", "blue")


async def count_named(question, best: int = 2) -> float:
    """A judge is a function of a question: the share of `best` colours that the judged text names. It stands in for a
    model; an API (kind = "api") or a checkpoint (kind = "frozen") is named in the recipe instead."""
    named = set(re.findall("|".join(COLOURS), question.messages[-1].text))
    return min(1.0, len(named) / best)


class Painter:
    """Says two colours; a judge decides how well."""

    def reset(self, seed: int) -> str:
        self.said = ""
        return f"Say {COLOURS[Random(seed).randrange(3)]} and another colour."

    def say(self, text: str) -> str:
        """Say something, which ends the episode.

        Args:
            text: What to say.
        """
        self.said, self.done = text, True
        return "said"

    async def get_reward(self, judges) -> dict[str, float]:
        verdict = await judges.ask("colours", self.said, rubric="Does the text name two colours?")
        return {"reward": verdict.score, "success": float(verdict.score == 1.0)}

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": "red and blue"}
