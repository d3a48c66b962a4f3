"""RULER: one question to a judge scores all attempts at a task, each relative to the others.

As in ART (OpenPipe), the opening that all share is shown once, and the score is the reward. What differs: the judge
reads the attempts in an order drawn from a seed; its scores are taken by the attempts' numbers, not by the order of
its lines; attempts stand in a fence that they cannot close; equal attempts are one and have one score; a missing score
is no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Invalid, Scored, TrajectoryGroup
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise.questions.asking import rank
from turnwise_rewards.ranked.transcript import write_transcript

EQUAL = 0.5
"""The score of attempts that are all the same: there is nothing to compare, and the judge is not asked."""


class RankingOptions(Section):
    """Options of `kind = "ranking"`."""

    judge: str
    """The judge of the recipe that ranks."""
    rubric: str = Field("Judge which attempts at the same task did best.")
    """What the judge is to look for."""


class Ranking:
    """Implements `GroupReward`: a score from 0 to 1 for every attempt, relative to the others."""

    def __init__(self, options: RankingOptions, seed: int) -> None:
        self._options, self._seed = options, seed

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return the judge's scores. Raises RewardError if it gives no verdict."""
        transcripts = [write_transcript(t) if isinstance(t.reward, Scored) else None for t in group.trajectories]
        distinct = list(dict.fromkeys(text for text in transcripts if text is not None))
        if len(distinct) < 2:
            return [EQUAL] * len(transcripts)
        scores = await rank(
            judges,
            self._options.judge,
            distinct,
            about=group.task.prompt,
            rubric=self._options.rubric,
            seed=self._seed,
        )
        by_text = dict(zip(distinct, scores, strict=True))
        return [EQUAL if text is None else by_text[text] for text in transcripts]


def build_ranking(parts: RewardParts) -> Ranking:
    """Build the reward of `RANKING`."""
    return Ranking(parts.options, parts.seed)


RANKING = RewardKind(
    name="ranking",
    summary="a judge's score of every attempt relative to the others",
    formula="judge(attempt 1, ..., attempt N) by number",
    paper="RULER (OpenPipe ART)",
    options=RankingOptions,
    build=build_ranking,
)
