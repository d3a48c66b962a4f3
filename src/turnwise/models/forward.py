"""Runs one forward pass over runs of tokens, by the model's path: computes hidden states, and logits of chosen rows.

Runs are as for `models.attention.PackedAttention`: sequences laid end to end, or the branches of a prefix tree. On the
generic path they become rows of whole sequences, padded on the right, with rows of similar length together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from turnwise.core.errors import EngineError
from turnwise.core.pictures import PlacedImages
from turnwise.models.attention import AttentionPlan, PackedAttention
from turnwise.models.head import Head, Reduce, count_chunks, reduce_logits
from turnwise.models.paths import find_path
from turnwise.models.rope import depends_on_length
from turnwise.models.routing import Routing, follow
from turnwise.models.rows import is_shared
from turnwise.models.vision.eyes import Eyes, find_eyes
from turnwise.models.vision.features import Features
from turnwise.models.vision.inside import INSIDE, look_inside
from turnwise.models.vision.placing import encode_pictures, place_features, show

LEAST_FILLED = 0.75
"""Minimum length of rows that compute together, relative to the longest of them."""
PlanAttention = Callable[[list[int], torch.Tensor | None, list[int]], AttentionPlan]
"""Builds the attention plan from the runs of a micro-batch (`lengths`, `seen`, `num_seen`)."""
Backbone = Callable[..., Any]
"""Maps tokens to an output with `last_hidden_state`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs:
    """T tokens in runs; see `batching.collate.MicroBatch`."""

    token_ids: torch.Tensor
    """`[T]`."""
    positions: torch.Tensor
    """`[T]`, or `[3, T]` (time, row, column)."""
    lengths: list[int]
    """Tokens per run."""
    seen: torch.Tensor | None
    """`[M]` the tokens that each run attends to, run after run; None if runs are whole sequences."""
    num_seen: list[int]
    """How many of `seen` belong to each run."""
    images: PlacedImages | None = None
    """Pictures and the tokens that stand for them; None if there are none."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Whole sequences as rows that compute together."""

    tokens: torch.Tensor
    """`[S, L]` index of the token at each place; 0 where a row is padded."""
    lengths: list[int]
    """`[S]` tokens of each row that are not padding."""
    wanted: torch.Tensor
    """`[N]` tokens of the runs whose output these rows compute."""
    places: torch.Tensor
    """`[N]` place of each such output in the flattened `[S * L]`."""


def can_share(model: PreTrainedModel) -> bool:
    """Whether computing a common prefix of several sequences once saves anything: on the fast path, if a token is
    rotated alike in all of them."""
    return find_path(model).kind == "fast" and not depends_on_length(model)


def compute_logits(
    model: PreTrainedModel,
    runs: Runs,
    rows: torch.Tensor,
    *,
    routing: Routing | None = None,
    attention: PlanAttention = PackedAttention,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute logits `[R, V]` and last hidden states `[R, H]` of the tokens `rows [R]`; no logits are computed for
    other tokens.

    `attention` and `routing` are for the fast path: which tokens attend to which, and which experts routers choose.
    """
    order, parts, hidden = _run(model, runs, rows, None, routing, attention)
    logits = [logits for (logits,) in parts]
    if len(parts) == 1:
        return logits[0], hidden[0]
    back = torch.cat(order).argsort()
    return torch.cat(logits)[back], torch.cat(hidden)[back]


def reduce_rows(
    model: PreTrainedModel,
    runs: Runs,
    rows: torch.Tensor,
    reduce: Reduce,
    *,
    routing: Routing | None = None,
    attention: PlanAttention = PackedAttention,
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Apply `reduce` to the logits of some rows at a time (see `models.head`); returns its results, joined in the order
    of computation, and the last hidden states `[R, H]` of all `rows [R]` in their own order.

    `reduce` receives indices into `rows`. The model is called as often as by `compute_logits`.
    """
    order, parts, hidden = _run(model, runs, rows, reduce, routing, attention)
    outputs = tuple(torch.cat(output) for output in zip(*parts, strict=True))
    return outputs, torch.cat(hidden)[torch.cat(order).argsort()]


def _run(
    model: PreTrainedModel,
    runs: Runs,
    rows: torch.Tensor,
    reduce: Reduce | None,
    routing: Routing | None,
    attention: PlanAttention,
) -> tuple[list[torch.Tensor], list[tuple[torch.Tensor, ...]], list[torch.Tensor]]:
    """Return, for every batch of a pass: which of `rows` it computes, their logits or the results of `reduce` for them,
    and their hidden states."""
    if find_path(model).kind == "fast":
        everything = torch.arange(len(rows), device=rows.device)
        inputs = _pack(model, runs, routing, attention)
        outputs, hidden = _call(model, inputs, everything, rows, reduce)
        return [everything], [outputs], [hidden]
    follow(None)
    order, parts, hidden_of = [], [], []
    shown = _Shown(model, runs, find_eyes(model))
    for batch in _lay_rows(model, runs):
        # Which of `rows` this batch computes, and where.
        at = _find(batch.wanted, rows, len(runs.token_ids))
        if not len(at) and len(rows) and not is_shared(model):
            continue
        places = batch.places[_index_of(batch.wanted, rows[at], len(runs.token_ids))]
        inputs = {**shown.in_rows(batch), "use_cache": False}
        outputs, hidden = _call(model, inputs, at, places, reduce)
        order.append(at)
        parts.append(outputs)
        hidden_of.append(hidden)
    return order, parts, hidden_of


def _call(
    model: PreTrainedModel, inputs: dict[str, Any], at: torch.Tensor, places: torch.Tensor, reduce: Reduce | None
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Call the model once: returns logits of the tokens at `places` of the flattened batch, or the results of `reduce`
    for them, and their hidden states. `at` are their indices for `reduce`."""

    def consume(hidden: torch.Tensor, output: Any) -> tuple[torch.Tensor, ...]:
        assert reduce is not None
        return reduce_logits(Head(model, output), hidden, at, reduce, count_chunks(model, len(at)))

    with _select(model, places, None if reduce is None else consume) as selected:
        logits = model(**inputs).logits.flatten(0, 1)
    if selected.hidden is None:
        hidden = logits.new_zeros(len(places), 0)
        return (logits[places],) if reduce is None else reduce(logits[places], at), hidden
    if selected.outputs is None:
        return (logits,), selected.hidden
    if not is_shared(model):
        return selected.outputs, selected.hidden
    # Ranks put the output layer together again when a gradient comes back to what their root has returned: to these
    # logits of no row, whose sum is 0.
    nothing = logits.sum()
    return tuple(each + nothing if each.is_floating_point() else each for each in selected.outputs), selected.hidden


def compute_hidden(
    backbone: Backbone,
    model: PreTrainedModel,
    runs: Runs,
    *,
    routing: Routing | None = None,
    attention: PlanAttention = PackedAttention,
) -> torch.Tensor:
    """Compute last hidden states `[T, H]` of all tokens by `backbone`, the layers of `model` or of a copy."""
    owner = backbone if isinstance(backbone, PreTrainedModel) else model
    if find_path(model).kind == "fast":
        inputs = _pack(model, runs, routing, attention, owner)
        hidden: torch.Tensor = backbone(**inputs).last_hidden_state[0]
        return hidden
    follow(None)
    shown = _Shown(owner, runs, find_eyes(model))
    order, parts = [], []
    for batch in _lay_rows(model, runs):
        output = backbone(**shown.in_rows(batch), use_cache=False)
        order.append(batch.wanted)
        parts.append(output.last_hidden_state.flatten(0, 1)[batch.places])
    return torch.cat(parts)[torch.cat(order).argsort()]


def _pack(
    model: PreTrainedModel,
    runs: Runs,
    routing: Routing | None,
    attention: PlanAttention,
    owner: PreTrainedModel | None = None,
) -> dict[str, Any]:
    """Build the arguments of a forward on the fast path, of `model` or of `owner`, which has layers like its.

    Raises EngineError if sequences share tokens that each of them would rotate according to its own length.
    """
    if runs.seen is not None and depends_on_length(model):
        raise EngineError(
            "the rope of this model depends on the sequence length, so sequences cannot share a prefix; use "
            "shared_prefix=False, or fix one length for all (models.rope.pin_length)"
        )
    inputs: dict[str, Any] = {
        **_Shown(owner or model, runs, find_eyes(model)).packed(),
        "position_ids": runs.positions[..., None, :],
        "use_cache": False,
        "attention_plan": attention(runs.lengths, runs.seen, runs.num_seen),
    }
    return inputs if routing is None else inputs | {"routing": routing}


class _Shown:
    """The tokens of runs as arguments of a forward, with their pictures, which are encoded once."""

    def __init__(self, owner: PreTrainedModel, runs: Runs, eyes: Eyes | None) -> None:
        """`owner` has the embedding and the tower. Raises EngineError for pictures without `eyes`."""
        self._owner, self._runs = owner, runs
        self._is_inside = eyes is not None and is_shared(owner)
        """Whether pictures are encoded in the forward, where ranks assemble parameters."""
        self._features: list[Features] = []
        if eyes is not None and self._is_inside:
            look_inside(owner, eyes)
        elif runs.images is not None:
            self._features = encode_pictures(owner, runs.images, eyes)

    def packed(self) -> dict[str, Any]:
        """Return all tokens in one row."""
        return self._show(self._runs.token_ids[None], self._runs.images)

    def in_rows(self, rows: _Rows) -> dict[str, Any]:
        """Return the tokens of `rows`, in which a picture that sequences share is there several times."""
        token_ids, images = self._runs.token_ids[rows.tokens], self._runs.images
        if images is not None:
            index = np.full(len(self._runs.token_ids), -1)
            index[images.places] = np.arange(len(images.places))
            taken = index[rows.tokens.cpu().numpy()]
            for row, length in zip(taken, rows.lengths, strict=True):
                row[length:] = -1  # padding repeats the first token, which may be a place
            taken = taken.flatten()
            places = np.flatnonzero(taken >= 0)
            taken = taken[places]
            images = replace(images, places=places, image=images.image[taken], row=images.row[taken])
        positions = self._runs.positions
        # Without them, a model counts tokens: right for all but pictures with axes of their own.
        axes = {"position_ids": positions[:, rows.tokens]} if positions.ndim == 2 else {}
        return self._show(token_ids, images) | axes

    def _show(self, token_ids: torch.Tensor, images: PlacedImages | None) -> dict[str, Any]:
        if self._is_inside:
            return {"input_ids": token_ids, INSIDE: images}
        placed = None if images is None else place_features(self._features, images, token_ids.device)
        return show(self._owner, token_ids, placed)


# ------------------------------------------------------------------------------------------------------ chosen rows


@dataclass(slots=True)
class _Selected:
    hidden: torch.Tensor | None = None
    outputs: tuple[torch.Tensor, ...] | None = None


@contextmanager
def _select(
    model: PreTrainedModel,
    places: torch.Tensor,
    consume: Callable[[torch.Tensor, Any], tuple[torch.Tensor, ...]] | None = None,
) -> Iterator[_Selected]:
    """Within the context, in this thread, pass only the hidden states at `places` of the flattened batch to the model's
    output layer, so that any model computes logits of chosen tokens only, including everything it does to them. With
    `consume`, which receives them and the output of the layers instead, the output layer receives none. Nothing is
    selected in a model without layers below its output layer."""
    selected, thread = _Selected(), threading.get_ident()

    def replace(_: Any, __: Any, output: Any) -> Any:
        if threading.get_ident() != thread:
            return output
        hidden = output[0].flatten(0, 1)[places]
        selected.hidden = hidden
        if consume is not None:
            selected.outputs, hidden = consume(hidden, output), hidden[:0]
        if isinstance(output, ModelOutput):
            output["last_hidden_state"] = hidden[None]
            return output
        return (hidden[None], *output[1:])

    base = model.base_model
    if base is model:
        yield selected
        return
    hook = base.register_forward_hook(replace)
    try:
        yield selected
    finally:
        hook.remove()


# ------------------------------------------------------------------------------------------------------ rows


def _lay_rows(model: PreTrainedModel, runs: Runs) -> Iterator[_Rows]:
    """Iterate over whole sequences in rows, those of similar length together. Ranks compute together, so theirs are one
    batch."""
    kept, fresh = _list_whole(runs)
    least = 1.0 if not find_path(model).pads or depends_on_length(model) else LEAST_FILLED
    if is_shared(model):
        least = 0.0
    start = 0
    while start < len(kept):
        length = len(kept[start])
        end = start + 1
        while end < len(kept) and len(kept[end]) >= least * length:
            end += 1
        yield _fill(kept[start:end], fresh[start:end])
        start = end


def _list_whole(runs: Runs) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the paths of whole sequences, longest first, and which of their tokens no earlier path contains."""
    total = len(runs.token_ids)
    everything = torch.arange(total, device=runs.token_ids.device)
    paths: Sequence[torch.Tensor] = (everything if runs.seen is None else runs.seen).split(runs.num_seen)
    taken = torch.zeros(total, dtype=torch.bool, device=runs.token_ids.device)
    kept: list[torch.Tensor] = []
    fresh: list[torch.Tensor] = []
    # Longest first: a shorter path whose end is in a longer one is a prefix of it.
    for path in sorted(paths, key=len, reverse=True):
        if not bool(taken[path[-1]]):
            kept.append(path)
            fresh.append(~taken[path])
            taken[path] = True
    return kept, fresh


def _fill(paths: Sequence[torch.Tensor], fresh: Sequence[torch.Tensor]) -> _Rows:
    length = len(paths[0])
    tokens = paths[0].new_zeros(len(paths), length)
    places = []
    for row, (path, new) in enumerate(zip(paths, fresh, strict=True)):
        tokens[row, : len(path)] = path
        places.append(row * length + torch.nonzero(new)[:, 0])
    wanted = torch.cat([path[new] for path, new in zip(paths, fresh, strict=True)])
    return _Rows(tokens, [len(path) for path in paths], wanted, torch.cat(places))


def _find(wanted: torch.Tensor, rows: torch.Tensor, total: int) -> torch.Tensor:
    """Return which of `rows` are among `wanted`, out of `total` tokens."""
    is_wanted = torch.zeros(total, dtype=torch.bool, device=rows.device)
    is_wanted[wanted] = True
    return torch.nonzero(is_wanted[rows])[:, 0]


def _index_of(wanted: torch.Tensor, rows: torch.Tensor, total: int) -> torch.Tensor:
    """Return the index in `wanted` of each of `rows`, which must all be there."""
    index = torch.zeros(total, dtype=torch.long, device=rows.device)
    index[wanted] = torch.arange(len(wanted), device=rows.device)
    return index[rows]
