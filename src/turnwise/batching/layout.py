"""Lays out the tokens of several sequences in one packed row: end to end, or as a prefix tree in which shared prefixes
occur once.

Three sequences [a b c d], [a b c e], [a f], as a tree (sorted: those with a common prefix are neighbours):

    token_ids    [a b c d e f]
    positions    [0 1 2 3 3 1]
    lengths      [4, 1, 1]                          runs: what each sequence adds to those before it
    seen         [0 1 2 3 | 0 1 2 4 | 0 5]          the path of each run, from the root to the run's last token
    num_seen     [4, 4, 2]
    paths        [[0 1 2 3], [0 1 2 4], [0 5]]      of the given sequences, in their order

A causal model gives a token the same output in every sequence that begins with the same tokens up to it, so one place
serves them all: forward, and backward, where the gradients of all of them add up. Sequences are token ids, or any
numbers that distinguish their tokens (`core.keys`, `collate.find_places`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_SIGN = np.uint64(1 << 63)
MAX_REREAD = 4
"""Maximum number of tokens that attention reads over all runs of a micro-batch, in units of its token limit. Keys
and values of a path are gathered for every run, so this bounds the memory for many short continuations of one long
prefix."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """T places for the tokens of S sequences, in runs of adjacent places."""

    token_ids: Ints
    """`[T]`."""
    positions: Ints
    """`[T]`, from 0 in each sequence."""
    lengths: list[int]
    """Places of each run; sums to T."""
    seen: Ints | None
    """`[M]` places that each run attends to, in order of position, the run's own last; run after run. None if each run
    attends only to itself."""
    num_seen: list[int]
    """How many of `seen` belong to each run; `lengths` where `seen` is None."""
    paths: list[Ints]
    """Per given sequence, the place of each of its tokens: `token_ids[path]` is the sequence."""


def lay_end_to_end(sequences: Sequence[NDArray[np.integer]]) -> Layout:
    """Lay out every sequence as a run of its own, whatever prefixes they share."""
    lengths = [len(ids) for ids in sequences]
    starts = np.cumsum([0, *lengths])
    return Layout(
        token_ids=np.concatenate([np.zeros(0, np.int64), *sequences]).astype(np.int64),
        positions=np.concatenate([np.zeros(0, np.int64), *map(np.arange, lengths)]),
        lengths=lengths,
        seen=None,
        num_seen=lengths,
        paths=[np.arange(start, start + length) for start, length in zip(starts, lengths, strict=False)],
    )


def lay_prefix_tree(sequences: Sequence[NDArray[np.integer]]) -> Layout:
    """Lay out a prefix tree, with one place for each distinct prefix: T is the number of nodes in the tree."""
    order = sort_by_prefix(sequences)
    paths: list[Ints] = [np.zeros(0, np.int64)] * len(sequences)
    pieces, runs = [np.zeros(0, np.int64)], []
    last, num_places = -1, 0
    for index in order:
        shared = 0 if last < 0 else count_shared(sequences[last], sequences[index])
        new = sequences[index][shared:]
        paths[index] = np.concatenate([paths[last][:shared], np.arange(num_places, num_places + len(new))])
        last, num_places = index, num_places + len(new)
        if len(new):
            pieces.append(new.astype(np.int64))
            runs.append((len(new), paths[index]))
    lengths, num_seen = [length for length, _ in runs], [len(path) for _, path in runs]
    return Layout(
        token_ids=np.concatenate(pieces),
        positions=np.concatenate(
            [np.zeros(0, np.int64), *(np.arange(len(path) - length, len(path)) for length, path in runs)]
        ),
        lengths=lengths,
        seen=None if lengths == num_seen else np.concatenate([path for _, path in runs]),
        num_seen=num_seen,
        paths=paths,
    )


def plan_shared_micro_batches(sequences: Sequence[NDArray[np.integer]], max_tokens: int) -> list[list[int]]:
    """Plan micro-batches as lists of indices, sequences with a common prefix together: as many as fit in `max_tokens`
    places of a prefix tree.

    The paths of a micro-batch's runs have at most `MAX_REREAD * max_tokens` places together. A sequence longer than a
    limit has its own micro-batch. Every index appears exactly once; any plan gives the same gradient up to rounding."""
    plan: list[list[int]] = []
    used = read = 0
    for index in sort_by_prefix(sequences):
        length = len(sequences[index])
        new = length - count_shared(sequences[plan[-1][-1]], sequences[index]) if plan else length
        path = length if new else 0
        if not plan or used + new > max_tokens or read + path > MAX_REREAD * max_tokens:
            plan.append([])
            used, read, new, path = 0, 0, length, length
        plan[-1].append(index)
        used, read = used + new, read + path
    return plan


def sort_by_prefix(sequences: Sequence[NDArray[np.integer]]) -> list[int]:
    """Return indices in lexicographic order: what a sequence shares with any earlier one it shares with the one before
    it."""
    # Big-endian bytes of non-negative numbers sort as the numbers do, and so do those of all numbers with the sign bit
    # flipped.
    keys = [(ids.astype(np.int64).view(np.uint64) ^ _SIGN).astype(">u8").tobytes() for ids in sequences]
    return sorted(range(len(keys)), key=keys.__getitem__)


def count_shared(one: NDArray[np.integer], other: NDArray[np.integer]) -> int:
    """Number of tokens in the common prefix of both."""
    limit = min(len(one), len(other))
    different = np.flatnonzero(one[:limit] != other[:limit])
    return int(different[0]) if len(different) else limit
