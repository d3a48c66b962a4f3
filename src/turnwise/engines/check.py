"""Checks that the paged engine computes what the model computes alone, before anything is sampled.

Two short sequences go through the engine's own runner and memory in one batch: a first turn of each, single tokens, a
further turn of several, single tokens. What follows each piece is compared with the model's own attention on the
sequence alone, as `models.check` does for the trainer's layouts."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.core.types import SamplingParams, Session
from turnwise.engines.paged.prefix_cache import BLANK_PAGE, Lease, Node
from turnwise.engines.paged.runner import ModelRunner
from turnwise.engines.paged.scheduler import Item, Request
from turnwise.models.check import (
    FIRST,
    HALF,
    SECOND,
    Reference,
    draw_sequences,
    fall_back,
    is_widened,
    lower_limits,
    note_gap,
    raise_weights,
    to_logprobs,
    with_own_attention,
)
from turnwise.models.paths import find_path, is_fast
from turnwise.models.rope import depends_on_length

PAGE_SIZE = 16
PIECES: Sequence[tuple[int, int]] = ((10, 13), (1, 1), (1, 1), (6, 1), (1, 4), (10, 1))
"""Tokens of both sequences in each step; each sequence's sum is its length in `models.check`."""


def check_steps(model: PreTrainedModel, *, fused: bool | None = None, attention: str = "gather") -> PreTrainedModel:
    """Return the model, switched from the fast path to the generic one if the engine's steps differ from the model
    alone.

    A model whose rope depends on lengths is returned unchecked unless its rope is pinned. `fused` and `attention` are
    those of `PagedEngine`. Raises ConfigError if neither path computes the model."""
    if not is_fast(model) or depends_on_length(model):
        return model
    if is_widened(model):
        wide = check_steps(copy.deepcopy(model).float(), fused=fused, attention=attention)
        if not is_fast(wide):
            return fall_back(model, find_path(wide).reason)
    with lower_limits(model), raise_weights(model):
        with with_own_attention(model):
            reference = Reference(model, is_known=model.dtype in HALF)
        try:
            with boundary(EngineError, "the engine's steps"):
                gap, nats = _measure(model, reference, fused, attention)
        except EngineError as error:
            return fall_back(model, str(error))
    if gap > reference.bound:
        return fall_back(model, f"the engine's steps differ from the model alone ({nats:.2g} nats)")
    return note_gap(model, "sampled", nats)


def _measure(model: PreTrainedModel, reference: Reference, fused: bool | None, attention: str) -> tuple[float, float]:
    """Return how far the engine's steps are from the model alone, as measured by `Reference.compare`."""
    runner = ModelRunner(
        model,
        num_pages=2 * -(-FIRST // PAGE_SIZE),
        page_size=PAGE_SIZE,
        max_context=FIRST + SECOND,
        fused=fused,
        attention=attention,  # type: ignore[arg-type]
    )
    sequences = draw_sequences(model)
    pages = [[1, 2], [3, 4]]
    done = [0, 0]
    relative, nats = [], []
    for counts in PIECES:
        items = [_take(ids.tolist(), pages[i], done[i], counts[i], i) for i, ids in enumerate(sequences)]
        done = [start + count for start, count in zip(done, counts, strict=True)]
        rows = to_logprobs(runner.run(items))
        for index, (row, end) in enumerate(zip(rows, done, strict=True)):
            one, two = reference.compare_row(row, index, end - 1)
            relative.append(one)
            nats.append(two)
    return float(np.quantile(relative, reference.quantile)), max(nats)


def _take(ids: list[int], pages: list[int], start: int, count: int, index: int) -> Item:
    """Return an item with `count` tokens of a sequence from `start` on, after which the next token would be sampled."""
    request = Request(
        session=Session("check", str(index)),
        tokens=ids[: start + count],
        num_prompt=start + count,
        params=SamplingParams(max_tokens=1),
        uniforms=np.zeros(1),
        lease=Lease(pages=pages, node=Node((), BLANK_PAGE, None, 0), num_reused=0),
    )
    return Item(request, start, count)
