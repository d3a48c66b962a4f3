"""A policy that learns only from how a judge ranks its attempts: turnwise train examples/ranked_speaker.toml"""

import re

import judged_speaker
from trained_judge import is_polite

from turnwise.core.verdicts import Question, Verdict


def rank_by_manners(question: Question) -> Verdict:
    """A judge: a polite attempt is far above one that is not, and of two polite ones the shorter is better."""
    longest = max(map(len, question.answers))
    scores = [
        is_polite(" ".join(re.findall("[a-z]+", text))) * (1 - 0.2 * len(text) / longest) for text in question.answers
    ]
    marks = tuple((f"answer {number}", f"{score:.3f}") for number, score in enumerate(scores, 1))
    return Verdict(score=sum(scores) / len(scores), marks=marks)


class Speaker(judged_speaker.Speaker):
    """Says some of the words that it sees. Its own reward is always 0; whether it was polite is measured."""

    async def get_reward(self, judges) -> dict[str, float]:
        return {"reward": 0.0, "success": float(is_polite(self.said))}
