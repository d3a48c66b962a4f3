"""A policy that only a judge rewards, beside the truth: turnwise train examples/judged_speaker.toml"""

from random import Random

from trained_judge import NEUTRAL, POLITE, RUBRIC, RUDE, is_polite


class Speaker:
    """Says some of the words that it sees; the judge decides whether they are polite. The environment knows the truth
    and tells it besides, so that the run measures how far the judge agrees."""

    def reset(self, seed: int) -> str:
        random = Random(seed)
        self.said = ""
        words = [*POLITE, *RUDE, *random.sample(NEUTRAL, 4)]
        random.shuffle(words)
        return " ".join(words)

    def say(self, text: str) -> str:
        """Say something, which ends the episode.

        Args:
            text: What to say.
        """
        self.said, self.done = text, True
        return "said"

    async def get_reward(self, judges) -> dict[str, float]:
        polite = float(is_polite(self.said))
        verdict = await judges.ask("manners", self.said, rubric=RUBRIC, truth=polite)
        return {"reward": verdict.score, "success": polite}

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": POLITE[0]}
