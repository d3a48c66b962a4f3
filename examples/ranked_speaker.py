"""A policy that learns only from how a judge ranks its attempts: turnwise train examples/ranked_speaker.toml"""

import re
from random import Random

from trained_judge import NEUTRAL, POLITE, RUDE, is_polite

from turnwise.core.verdicts import Question, Verdict


def rank_by_manners(question: Question) -> Verdict:
    """A judge: a polite attempt is far above one that is not, and of two polite ones the shorter is better."""
    longest = max(map(len, question.answers))
    scores = [
        is_polite(" ".join(re.findall("[a-z]+", text))) * (1 - 0.2 * len(text) / longest) for text in question.answers
    ]
    marks = tuple((f"answer {number}", f"{score:.3f}") for number, score in enumerate(scores, 1))
    return Verdict(score=sum(scores) / len(scores), marks=marks)


class Speaker:
    """Says some of the words that it sees. Its own reward is always 0; whether it was polite is measured."""

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

    def get_reward(self) -> dict[str, float]:
        return {"reward": 0.0, "success": float(is_polite(self.said))}

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": POLITE[0]}
