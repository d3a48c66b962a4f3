"""Processes that train one model together, as seen by a step: each computes a share of the micro-batches, and all of
them receive the sums over the shares.

Every rank plans from the whole batch, by pure functions of it, so that all have the same number of micro-batches and
take part in every collective; a rank without a micro-batch computes an empty one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Plan = list[list[int]]
"""Indices per micro-batch."""


class Ranks(Protocol):
    """This process and those it trains with. All of them must make the same calls in the same order."""

    @property
    def index(self) -> int:
        """Index of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    def add(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over all ranks of arrays with one shape."""
        ...

    def agree(self, problem: str | None) -> str | None:
        """Return the problem of the first rank that has one, on all ranks; None if none has one."""
        ...


class Alone:
    """One process: implements `Ranks`."""

    index = 0
    size = 1

    def add(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Ranks.add`."""
        return numbers

    def agree(self, problem: str | None) -> str | None:
        """See `Ranks.agree`."""
        return problem


ALONE: Ranks = Alone()


def plan_rounds(plan: Callable[[int], Plan], cost: Callable[[list[int]], int], limit: int, size: int) -> list[Plan]:
    """Plan micro-batches in rounds of `size`, one per rank, [] for a rank without work in the last round.

    `plan` splits the batch into micro-batches of at most a given number of tokens. There are as few rounds as `limit`
    allows, and the split uses the smallest limit that needs no more rounds; micro-batches of similar `cost` share a
    round, because a round lasts as long as its longest micro-batch.
    """
    cut = plan(limit)
    if size == 1:
        return [[indices] for indices in cut]
    places = -(-len(cut) // size) * size
    low, high = 1, limit
    while low < high:
        middle = (low + high) // 2
        finer = plan(middle)
        if len(finer) <= places:
            high, cut = middle, finer
        else:
            low = middle + 1
    ordered = sorted(cut, key=cost, reverse=True) + [[]] * (places - len(cut))
    return [ordered[start : start + size] for start in range(0, places, size)]


def join_rows(
    rows: Mapping[int, NDArray[np.generic]], counts: Sequence[int], ranks: Ranks
) -> list[NDArray[np.generic]]:
    """Return arrays `[counts[i]]` float32 in order; every rank has some of them, by index."""
    if ranks.size == 1:
        return [rows[index] for index in range(len(counts))]
    ends = np.cumsum(counts)
    joined = np.zeros(int(ends[-1]) if len(ends) else 0)
    for index, array in rows.items():
        joined[ends[index] - counts[index] : ends[index]] = array
    return list(np.split(ranks.add(joined).astype(np.float32), ends[:-1])) if counts else []


def add_totals(totals: Mapping[str, float], ranks: Ranks) -> dict[str, float]:
    """Return the sum over all ranks of numbers that each rank has under the same names."""
    sums = ranks.add(np.array(list(totals.values()), np.float64))
    return dict(zip(totals, sums.tolist(), strict=True))


def find_largest(number: float, ranks: Ranks) -> float:
    """Return the largest number on all ranks."""
    return find_maxima({"": number}, ranks)[""]


def find_maxima(numbers: Mapping[str, float], ranks: Ranks) -> dict[str, float]:
    """Return the largest value over all ranks of each number that every rank has under the same names; minus infinity
    is a valid number."""
    by_rank = np.zeros((ranks.size, len(numbers)))
    by_rank[ranks.index] = list(numbers.values())
    largest = ranks.add(by_rank.ravel()).reshape(by_rank.shape).max(axis=0)
    return dict(zip(numbers, largest.tolist(), strict=True))
