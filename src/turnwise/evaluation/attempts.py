"""What choosing among several attempts at one task is worth, exactly: expectations over every draw of k of n attempts
without replacement, so that no random numbers enter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby


def compute_majority_at(k: int, answers: Sequence[Hashable | None], successes: Sequence[float]) -> float:
    """Return the expected success of the most frequent answer among `k` attempts (maj@k; self-consistency, arXiv
    2203.11171).

    Args:
        k: attempts that vote.
        answers: of every attempt; None where it gave none, which is no vote.
        successes: of every attempt, in [0, 1]; an answer is worth the mean over the attempts that gave it.

    Answers that are equally frequent are equally likely to be chosen. If none of the k votes, success is 0. Raises
    ValueError if there are fewer than `k` attempts, or another number of answers than of successes.
    """
    _check_draw(k, len(successes))
    worth: dict[Hashable, list[float]] = {}
    for answer, success in zip(answers, successes, strict=True):
        if answer is not None:
            worth.setdefault(answer, []).append(success)
    sizes = tuple(sorted(map(len, worth.values())))
    chances = _win_chances(k, sizes, len(successes) - sum(sizes))
    return math.fsum(chances[len(each)] * math.fsum(each) / len(each) for each in worth.values())


def compute_best_of(k: int, scores: Sequence[float], successes: Sequence[float]) -> float:
    """Return the expected success of the attempt with the highest score among `k` (best-of-k).

    Equal scores are equally likely to be chosen, so that constant scores are worth what random ones are: the mean
    success, the control of every best-of-k. Raises ValueError if there are fewer than `k` attempts, another number of
    scores, or a score that is not a number.
    """
    _check_draw(k, len(successes))
    if any(math.isnan(score) for score in scores):
        raise ValueError(f"score {next(i for i, score in enumerate(scores) if math.isnan(score)) + 1} is not a number")
    ranked = sorted(zip(scores, successes, strict=True))
    draws, below, total = math.comb(len(ranked), k), 0, 0.0
    for _, group in groupby(ranked, key=lambda pair: pair[0]):
        tied = [success for _, success in group]
        # The best of k is in this group if all k are at most as high and not all k are lower.
        chance = (math.comb(below + len(tied), k) - math.comb(below, k)) / draws
        total += chance * math.fsum(tied) / len(tied)
        below += len(tied)
    return total


def _check_draw(k: int, num_attempts: int) -> None:
    if not 1 <= k <= num_attempts:
        raise ValueError(f"{k} of {num_attempts} attempts cannot be drawn; k is at least 1 and at most their number")


@lru_cache(maxsize=4096)
def _win_chances(k: int, sizes: tuple[int, ...], silent: int) -> Mapping[int, float]:
    """Chance that one particular answer wins, by the number of attempts that gave it.

    `sizes` are these numbers, one per answer; `silent` attempts have no answer.
    """
    draws = math.comb(sum(sizes) + silent, k)
    counted = Counter(sizes)
    chances = {}
    for size in counted:
        others = [each for each, number in (counted - Counter([size])).items() for _ in range(number)]
        won = 0.0
        for votes in range(1, min(size, k) + 1):
            ways = _count_ways(others, silent, votes, k - votes)
            won += math.fsum(math.comb(size, votes) * each / draws / (ties + 1) for ties, each in enumerate(ways))
        chances[size] = won
    return chances


def _count_ways(others: Sequence[int], silent: int, votes: int, left: int) -> list[int]:
    """Number of ways to draw `left` attempts so that no other answer has more than `votes`, by the number of answers
    that have exactly `votes`."""
    most_ties = min(len(others), left // votes)
    ways = [[math.comb(silent, drawn) for drawn in range(left + 1)]] + [[0] * (left + 1) for _ in range(most_ties)]
    for size in others:
        for ties in range(most_ties, -1, -1):
            fewer = ways[ties]
            row = [
                sum(math.comb(size, taken) * fewer[drawn - taken] for taken in range(min(size, votes - 1, drawn) + 1))
                for drawn in range(left + 1)
            ]
            if ties and size >= votes:
                tie = math.comb(size, votes)
                row = [
                    each + (tie * ways[ties - 1][drawn - votes] if drawn >= votes else 0)
                    for drawn, each in enumerate(row)
                ]
            ways[ties] = row
    return [row[left] for row in ways]
