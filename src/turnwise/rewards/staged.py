"""Progressive reward shaping (arXiv 2512.07478): later stages count only once the earlier ones pass.

Known of the paper: format first, then answer quality; length-aware BLEU for short answers, a judge for long ones;
gating. Not known, and ours here: the weights, the thresholds, and how BLEU minds the length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.core.errors import RewardError, boundary
from turnwise.core.types import RewardPart, Scored
from turnwise.rewards.normal_form import Normalize, normalize_answer

Judge = Callable[[str, Sequence[str]], float]
"""Prediction and gold answers to a score in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardStage:
    """One stage of a staged reward."""

    name: str
    score: Callable[[], float]
    """In [0, 1]; called only once all earlier stages passed, so an expensive judge comes last."""
    weight: float = 1.0
    """At least 0: passing a stage never lowers the reward."""
    threshold: float = 1.0
    """Scores from here on pass; below it, the stage counts and later ones do not."""


def compute_staged_reward(stages: Sequence[RewardStage]) -> Scored:
    """The weighted scores of all stages up to the first that does not pass.

    There is one part per stage, unweighted; 0 where not reached.

    Raises:
        ValueError: no stages, or a negative weight.
        RewardError: a score raised, or is not a number in [0, 1].
    """
    if not stages:
        raise ValueError("a staged reward needs at least one stage")
    total, reached = 0.0, True
    parts = []
    for stage in stages:
        if not (math.isfinite(stage.weight) and stage.weight >= 0):
            raise ValueError(f"stage {stage.name!r} has weight {stage.weight}; it must be finite and at least 0")
        value = _checked_score(stage.name, stage.score) if reached else 0.0
        total += stage.weight * value
        parts.append(RewardPart(name=stage.name, value=value))
        reached = reached and value >= stage.threshold
    return Scored(total=total, parts=tuple(parts))


def compute_length_aware_bleu(
    prediction: str, golds: Sequence[str], *, max_order: int = 4, normalize: Normalize = "numbers"
) -> float:
    """The best BLEU over gold answers on words in normal form, in [0, 1], made for answers of a few words.

    `BP * exp(mean_n log p_n)` for n = 1..N: clipped n-gram precisions p_n (for n > 1 with one added to both counts, so
    that one broken pair of words does not give 0) and brevity penalty `BP = exp(min(0, 1 - |gold| / |prediction|))`.
    The highest order N is `max_order` or the shorter length, whichever is less: plain BLEU-4 gives 0 to every answer
    below four words. Words too many lower p_n, words missing lower BP. Equal word sequences give 1; no shared word
    gives 0; two empty normal forms agree (1), one empty gives 0; no gold answer gives 0.

    Raises:
        ValueError: max_order is below 1.
    """
    if max_order < 1:
        raise ValueError(f"max_order is {max_order}; it must be at least 1")
    words = normalize_answer(prediction, normalize).split()
    return max((_bleu(words, normalize_answer(gold, normalize).split(), max_order) for gold in golds), default=0.0)


def _bleu(words: list[str], gold: list[str], max_order: int) -> float:
    if not words or not gold:
        return float(words == gold)
    logs = []
    for n in range(1, min(max_order, len(words), len(gold)) + 1):
        given, wanted = _ngrams(words, n), _ngrams(gold, n)
        matched, added = (given & wanted).total(), int(n > 1)
        if not matched + added:
            return 0.0
        logs.append(math.log((matched + added) / (given.total() + added)))
    return math.exp(min(0.0, 1 - len(gold) / len(words)) + math.fsum(logs) / len(logs))


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def score_answer(
    prediction: str,
    golds: Sequence[str],
    *,
    judge: Judge | None,
    max_short_words: int = 10,
    normalize: Normalize = "numbers",
) -> float:
    """Length-aware BLEU where a gold answer has at most `max_short_words` words, else what the judge says; in [0, 1].

    Args:
        judge: asked only when every gold answer is long; None where no answer is.

    Raises:
        RewardError: a long answer without a judge, or the judge raised or gave something that is not a number in [0,
        1]. ValueError: no gold answers.
    """
    if not golds:
        raise ValueError("no gold answers; an answer is scored against at least one")
    if min(len(normalize_answer(gold, normalize).split()) for gold in golds) <= max_short_words:
        return compute_length_aware_bleu(prediction, golds, normalize=normalize)
    if judge is None:
        raise RewardError(
            f"every gold answer has more than {max_short_words} words and there is no judge; give one or raise "
            "max_short_words"
        )
    return _checked_score("judge", lambda: judge(prediction, golds))


def _checked_score(name: str, score: Callable[[], float]) -> float:
    with boundary(RewardError, f"the score of {name!r}"):
        value = float(score())
    if not 0 <= value <= 1:
        raise RewardError(f"the score of {name!r} is {value}; it must lie in [0, 1]")
    return value
