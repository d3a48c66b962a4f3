"""Questions that compare: what an environment asks of several answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.core.errors import RewardError
from turnwise.core.judging import EpisodeJudges
from turnwise.core.messages import Message
from turnwise.core.seeds import rng
from turnwise.core.verdicts import Verdict
from turnwise.questions.forms import pair, ranking


async def compare(
    judges: EpisodeJudges, judge: str, first: str, second: str, *, about: str | Sequence[Message] = "", rubric: str = ""
) -> float:
    """Return how the first answer does against the second: 1, 0, 0.5 for a tie, or between where only one order ties.

    Asked in both orders: a judge that prefers a place and not an answer gives a tie. Raises as `EpisodeJudges.ask`."""
    form = pair()
    forth = await judges.ask(judge, about, answers=[first, second], rubric=rubric, form=form)
    back = await judges.ask(judge, about, answers=[second, first], rubric=rubric, form=form)
    return (forth.score + 1 - back.score) / 2


async def rank(
    judges: EpisodeJudges,
    judge: str,
    answers: Sequence[str],
    *,
    about: str | Sequence[Message] = "",
    rubric: str = "",
    seed: int = 0,
) -> list[float]:
    """Return a score from 0 to 1 for every answer, relative to the others (as RULER does), in the order given.

    The judge reads them in an order that `seed` and the texts decide, and its scores are taken by number, not by the
    order of its lines. Raises as `EpisodeJudges.ask`; an answer without a score is no verdict."""
    order = list(range(len(answers)))
    rng("rank", seed, *answers).shuffle(order)
    verdict = await judges.ask(
        judge, about, answers=[answers[place] for place in order], rubric=rubric, form=ranking(len(answers))
    )
    scores = [0.0] * len(answers)
    for number, place in enumerate(order, 1):
        scores[place] = _read_score(judge, verdict, f"answer {number}")
    return scores


def _read_score(judge: str, verdict: Verdict, name: str) -> float:
    """Return a mark as a number. A function's marks are its own: nothing has read them yet."""
    mark = dict(verdict.marks).get(name)
    try:
        score = float(mark)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise RewardError(f"the judge {judge!r} ranks answers, and its verdict has {name}={mark!r}; give it a number")
    return score
