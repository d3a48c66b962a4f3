"""Packs samples into one micro-batch of tensors, end to end without padding; the only place that shifts by one token.

Two samples A = [a b c] (c trains) and B = [a e] (e trains), end to end and as a prefix tree:

    token_ids    [a b c a e]          [a b c e]
    positions    [0 1 2 0 1]          [0 1 2 1]
    lengths      [3, 2]               [3, 1]
    seen         None                 [0 1 2 0 3]
    ends         [2 4]                [2 3]         last token of A and of B
    predict_at   [1 3]                [0 1]         rows of the model's output that are needed
    row          [0 1]                [1 0]         b predicts c, a predicts e
    targets      [c e]                [c e]
    sequence     [0 1]                [0 1]

Where experts were recorded, samples share only tokens that were computed by the same experts, so that a micro-batch
reproduces the experts of each sample.

From `targets` on nothing depends on the layout: there is one entry per trained token of each sample, in the samples'
order, even if several samples train on one place of the tree with different advantages. Further numbers per trained
token (weights, old log-probabilities, returns of a critic) are passed as named columns, computed once over the whole
step and split here like everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.batching.layout import Layout, lay_end_to_end, lay_prefix_tree, plan_shared_micro_batches
from turnwise.batching.pack import plan_micro_batches
from turnwise.batching.ranks import ALONE, Plan, Ranks, plan_rounds
from turnwise.core.keys import to_keys
from turnwise.core.pictures import PlacedImages
from turnwise.core.positions import number_positions
from turnwise.core.types import (
    UNRECORDED,
    ByteArray,
    Origin,
    Sample,
    TrajectoryId,
    to_floats,
    to_ids,
    to_mask,
)

TokenColumn = Sequence[NDArray[Any]]
"""One array per sample, `[K_i]` over its trained tokens."""
TokenColumns = Mapping[str, TokenColumn]


class Packing(TypedDict):
    """How steps are cut into micro-batches: keyword arguments of `iterate_micro_batches` and of every step."""

    micro_batch_tokens: int
    """Maximum number of tokens computed in one forward and backward pass."""
    shared_prefix: bool
    """Compute a prefix that several samples share only once."""
    ranks: NotRequired[Ranks]
    """The processes that share the micro-batches of a step; one process alone if missing."""


UNTRAINED = Sample(
    token_ids=to_ids([0]),
    loss_mask=to_mask([False]),
    behavior_logprobs=to_floats([0]),
    advantages=to_floats([0]),
    version_first=0,
    version_last=0,
    origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id=""),
)
"""The content of an empty micro-batch: one token, which does not train."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """The input of one forward and backward pass. T computed tokens, S samples, K trained tokens, predicted by R rows
    of the output."""

    token_ids: torch.Tensor
    """`[T]` int64."""
    positions: torch.Tensor
    """`[T]` int64, from 0 in each sample; `[3, T]` if a picture numbers its places by time, row and column."""
    lengths: list[int]
    """Tokens per run of adjacent tokens (end to end: per sample); they sum to T."""
    seen: torch.Tensor | None
    """`[M]` int64, the tokens that each run attends to, run after run, the run's own tokens last; None if each run
    attends only to itself."""
    num_seen: list[int]
    """How many of `seen` belong to each run; `lengths` where `seen` is None."""
    ends: torch.Tensor
    """`[S]` int64, index of each sample's last token."""
    predict_at: torch.Tensor
    """`[R]` int64, index of the tokens whose output predicts trained ones."""
    row: torch.Tensor
    """`[K]` int64, index in `predict_at` of the token that predicts the trained token."""
    targets: torch.Tensor
    """`[K]` int64, the trained tokens."""
    sequence: torch.Tensor
    """`[K]` int64, index of the sample in this micro-batch."""
    behavior_logprobs: torch.Tensor
    """`[K]` float32; NaN at tokens that were not sampled (unmasked observations)."""
    advantages: torch.Tensor
    """`[K]` float32."""
    columns: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """`[K]` each, by name; numbers are float32."""
    experts: torch.Tensor | None = None
    """`[T, layers, k]` uint8, the experts that computed each token at sampling; `UNRECORDED` at the last token of a
    sample, among others. None if no sample has any."""
    images: PlacedImages | None = None
    """Pictures and the tokens that stand for them; None if there are none."""


def collate(
    samples: Sequence[Sample],
    device: torch.device | str = "cpu",
    columns: TokenColumns | None = None,
    *,
    shared_prefix: bool = False,
) -> MicroBatch:
    """Pack samples and their columns; with `shared_prefix` a prefix that several samples share is laid out once.

    Raises ValueError if there is no sample or a column does not fit.
    """
    if not samples:
        raise ValueError("collate needs at least one sample")
    layout = (lay_prefix_tree if shared_prefix else lay_end_to_end)(find_places(samples, shared_prefix=shared_prefix))
    token_ids = np.zeros(len(layout.positions), np.int64)
    for path, sample in zip(layout.paths, samples, strict=True):
        token_ids[path] = sample.token_ids
    trained = [np.flatnonzero(s.loss_mask) for s in samples]
    predicting = np.concatenate([path[at - 1] for path, at in zip(layout.paths, trained, strict=True)])
    predict_at, row = (
        np.unique(predicting, return_inverse=True) if shared_prefix else (predicting, np.arange(len(predicting)))
    )

    def to_tensor(array: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    packed = {}
    for name, arrays in (columns or {}).items():
        joined = np.concatenate(arrays)
        if joined.shape != predicting.shape:
            raise ValueError(f"column {name!r} has {len(joined)} numbers for {len(predicting)} trained tokens")
        packed[name] = to_tensor(joined.astype(np.float32) if np.issubdtype(joined.dtype, np.floating) else joined)
    return MicroBatch(
        token_ids=to_tensor(token_ids),
        positions=to_tensor(_number(samples, layout)),
        lengths=layout.lengths,
        seen=None if layout.seen is None else to_tensor(layout.seen),
        num_seen=layout.num_seen,
        ends=to_tensor(np.array([path[-1] for path in layout.paths])),
        predict_at=to_tensor(predict_at),
        row=to_tensor(row),
        targets=to_tensor(np.concatenate([s.token_ids[s.loss_mask] for s in samples]).astype(np.int64)),
        sequence=to_tensor(np.repeat(np.arange(len(samples)), [len(at) for at in trained])),
        behavior_logprobs=to_tensor(np.concatenate([s.behavior_logprobs[s.loss_mask] for s in samples])),
        advantages=to_tensor(np.concatenate([s.advantages[s.loss_mask] for s in samples])),
        columns=packed,
        experts=None if (experts := _lay_experts(samples, layout)) is None else to_tensor(experts),
        images=_place_images(samples, layout),
    )


def find_places(samples: Sequence[Sample], *, shared_prefix: bool) -> list[NDArray[np.integer]]:
    """Return one sequence of numbers per sample by which a layout distinguishes tokens, `[N]`: its keys, or with
    `shared_prefix` numbers that are equal exactly where keys and experts are."""
    if not shared_prefix or all(sample.experts is None for sample in samples):
        return [to_keys(sample.token_ids, sample.images) for sample in samples]
    numbers: dict[bytes, int] = {}
    return [
        np.array([numbers.setdefault(key, len(numbers)) for key in _list_keys(sample)], np.int64) for sample in samples
    ]


def _list_keys(sample: Sample) -> Iterator[bytes]:
    """Iterate over the key and experts of each token as bytes."""
    experts = sample.experts if sample.experts is not None else ()
    for token, chosen in zip_longest(
        to_keys(sample.token_ids, sample.images), experts, fillvalue=np.zeros(0, np.uint8)
    ):
        yield token.tobytes() + chosen.tobytes()


def _number(samples: Sequence[Sample], layout: Layout) -> NDArray[np.int64]:
    """Return the positions of the laid out tokens, `[T]` or `[3, T]`."""
    if all(span.grid is None for sample in samples for span in sample.images):
        return layout.positions
    numbers = np.zeros((3, len(layout.positions)), np.int64)
    for path, sample in zip(layout.paths, samples, strict=True):
        numbers[:, path] = number_positions(len(path), sample.images)
    return numbers


def _place_images(samples: Sequence[Sample], layout: Layout) -> PlacedImages | None:
    """Return where pictures stand; a place that samples share is there once."""
    sources = {
        int(place): (span.digest, span.offset + k)
        for path, sample in zip(layout.paths, samples, strict=True)
        for span in sample.images
        for k, place in enumerate(path[span.start : span.start + span.length])
    }
    return PlacedImages.of(sources) if sources else None


def _lay_experts(samples: Sequence[Sample], layout: Layout) -> ByteArray | None:
    shapes = {sample.experts.shape[1:] for sample in samples if sample.experts is not None}
    if not shapes:
        return None
    if len(shapes) > 1:
        raise ValueError(
            f"samples have experts of {sorted(shapes)} layers and choices; they come from different models"
        )
    experts = np.full((len(layout.positions), *shapes.pop()), UNRECORDED, np.uint8)
    for path, sample in zip(layout.paths, samples, strict=True):
        if sample.experts is not None:
            experts[path[:-1]] = sample.experts
    return experts


def iterate_micro_batches(
    samples: Sequence[Sample],
    device: torch.device | str = "cpu",
    columns: TokenColumns | None = None,
    *,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> Iterator[tuple[list[int], MicroBatch]]:
    """Iterate over micro-batches of at most `micro_batch_tokens` computed tokens, each with the indices of its samples,
    every index exactly once.

    With `shared_prefix` the samples are in lexicographic order, so that those with a common prefix share a micro-batch.
    With several `ranks`, each gets its share, all the same number; an empty micro-batch has no indices."""
    sequences = find_places(samples, shared_prefix=shared_prefix)

    def plan(limit: int) -> Plan:
        if shared_prefix:
            return plan_shared_micro_batches(sequences, limit)
        return plan_micro_batches([len(ids) for ids in sequences], limit)

    def count_tokens(indices: list[int]) -> int:
        lay = lay_prefix_tree if shared_prefix else lay_end_to_end
        return len(lay([sequences[i] for i in indices]).token_ids)

    for round_ in plan_rounds(plan, count_tokens, micro_batch_tokens, ranks.size):
        indices = round_[ranks.index]
        if indices:
            part = {name: [arrays[i] for i in indices] for name, arrays in (columns or {}).items()}
            yield indices, collate([samples[i] for i in indices], device, part, shared_prefix=shared_prefix)
        else:
            yield indices, collate_nothing(device, columns)


def collate_nothing(device: torch.device | str = "cpu", columns: TokenColumns | None = None) -> MicroBatch:
    """Build a micro-batch without samples, for which a model computes one token and nothing trains; `columns` have the
    names of those in other micro-batches."""
    empty = {name: [arrays[0][:0]] for name, arrays in (columns or {}).items()}
    batch = collate([UNTRAINED], device, empty)
    return replace(batch, ends=batch.ends[:0])


def split_column(values: NDArray[np.generic], samples: Sequence[Sample]) -> list[NDArray[np.generic]]:
    """Split one array over all trained tokens of the samples, `[K]`, into a column. Raises ValueError for any other
    length."""
    counts = [int(s.loss_mask.sum()) for s in samples]
    if len(values) != sum(counts):
        raise ValueError(f"{len(values)} numbers for {sum(counts)} trained tokens")
    return list(np.split(values, np.cumsum(counts)[:-1])) if counts else []
