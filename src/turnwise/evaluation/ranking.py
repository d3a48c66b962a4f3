"""Measures how well scores separate two classes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def compute_auc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Return the probability that a positive has a higher score than a negative, ties counted half (Mann and Whitney
    1947).

    None if there is no positive or no negative.
    """
    ranked = sorted(zip(scores, labels, strict=True), key=lambda pair: pair[0])
    num_positive = sum(labels)
    num_negative = len(labels) - num_positive
    if not num_positive or not num_negative:
        return None
    won, below = 0.0, 0
    for _, group in groupby(ranked, key=lambda pair: pair[0]):
        tied = [label for _, label in group]
        positives = sum(tied)
        won += positives * (below + (len(tied) - positives) / 2)
        below += len(tied) - positives
    return won / (num_positive * num_negative)
