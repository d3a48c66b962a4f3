"""Cuts documents into sequences and steps of continual pre-training. Pure planning over lengths.

Three documents a (5 tokens), b (3) and c (2) in sequences of at most 4 tokens:

    separate   [a0 a1 a2 a3] [a3 a4] [b0 b1 b2] [c0 c1]     trains a1 .. a4, b1 b2, c1
    joined     [a0 a1 a2 a3] [a3 a4 b0 b1] [b1 b2 c0 c1]    trains a1 .. a4, b0 .. b2, c0 c1

The first token of a sequence is only context: it is a document's first token, or has trained in the sequence before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from turnwise.core.seeds import rng

Packing = Literal["separate", "joined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens `start` to before `end` of a document."""

    document: int
    """Index of the document."""
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """What one optimizer step trains on."""

    epoch: int
    """Number of the pass over the documents in which its first sequence begins, from 0."""
    sequences: tuple[tuple[Piece, ...], ...]

    @property
    def num_trained(self) -> int:
        """Number of tokens that train: all but the first of each sequence."""
        return sum(sum(map(len, sequence)) - 1 for sequence in self.sequences)


def plan_steps(
    lengths: Sequence[int], *, batch_tokens: int, max_tokens: int, packing: Packing, seed: int
) -> Iterator[PlannedStep]:
    """Plan steps without end: one pass over the documents after another, each in its own order.

    `lengths` are tokens per document, each at least 2; a step trains at most `batch_tokens`, in sequences of at most
    `max_tokens`. Raises ValueError where no sequence fits into a step, or a document has fewer than two tokens.
    """
    if max_tokens < 2 or batch_tokens < max_tokens - 1 or not lengths or min(lengths) < 2:
        raise ValueError(f"nothing to plan: {batch_tokens=}, {max_tokens=}, {len(lengths)} documents")
    sequences = (_separate if packing == "separate" else _join)(lengths, max_tokens, seed)
    taken: list[tuple[Piece, ...]] = []
    begun, room = 0, batch_tokens
    for epoch, sequence in sequences:
        trained = sum(map(len, sequence)) - 1
        if trained > room:
            yield PlannedStep(epoch=begun, sequences=tuple(taken))
            taken, room = [], batch_tokens
        if not taken:
            begun = epoch
        taken.append(sequence)
        room -= trained


def _order(lengths: Sequence[int], seed: int) -> Iterator[tuple[int, int]]:
    """Yield (pass, document) without end."""
    epoch = 0
    while True:
        order = list(range(len(lengths)))
        rng(seed, "document order", epoch).shuffle(order)
        yield from ((epoch, document) for document in order)
        epoch += 1


def _separate(lengths: Sequence[int], max_tokens: int, seed: int) -> Iterator[tuple[int, tuple[Piece, ...]]]:
    for epoch, document in _order(lengths, seed):
        for start in range(0, lengths[document] - 1, max_tokens - 1):
            end = min(start + max_tokens, lengths[document])
            yield epoch, (Piece(document=document, start=start, end=end),)


def _join(lengths: Sequence[int], max_tokens: int, seed: int) -> Iterator[tuple[int, tuple[Piece, ...]]]:
    taken: list[Piece] = []
    begun, room = 0, max_tokens
    for epoch, document in _order(lengths, seed):
        start = 0
        while start < lengths[document]:
            if not taken:
                begun = epoch
            piece = Piece(document=document, start=start, end=min(start + room, lengths[document]))
            taken.append(piece)
            room -= len(piece)
            start = piece.end
            if not room:
                yield begun, tuple(taken)
                taken, room, begun = (
                    [Piece(document=document, start=piece.end - 1, end=piece.end)],
                    max_tokens - 1,
                    epoch,
                )
