"""Batch-invariant attention on a CPU: a row has the same bits in any batch, so that scoring repeats sampling exactly.

In float32 with one thread, matrix kernels sum a row in an order that depends on the shape of the whole product: few
rows, and on some processors any number of rows, are computed by another code path than many, and the number of keys
decides where a long sum is split. So MKL is set to its strict reproducible mode, in which the number of rows does not
matter, and every product of attention has at least `MIN_ROWS` rows and a number of keys that `padded_span` returns, the
surplus masked. An engine that attends with the same two functions gives a token the same bits whether it is decoded
alone, prefilled in a chunk or scored in a packed batch.
"""

from __future__ import annotations

import os

import torch
from torch.nn import functional

from turnwise.core.errors import EngineError
from turnwise.models.attention import (
    PLAIN,
    PackedAttention,
    Rules,
    attend_by_rules,
    group_heads,
    hide,
    ungroup_heads,
)

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # MKL reads it at the first product of the process

MIN_ROWS = 4
"""Minimum number of rows in an attention product."""
MIN_BATCH_ROWS = 8
"""Minimum number of tokens that an engine runs at once. Matrix kernels may round a row differently in products of one
to three rows; in larger ones a row does not depend on its neighbours, so neither do samples."""
TILE = 64
"""Number of query tokens computed together, which limits the memory of the mask."""


def padded_span(num_keys: int) -> int:
    """Return the number of keys, a multiple of 64, with which `num_keys` real and then masked keys sum in one order.

    Attention takes keys in blocks of 512, and matrix kernels split a block at places that depend on its size and on the
    processor (at 192, in halves, or not at all up to 384). Every processor sums the first 192 keys in one piece; above,
    the block is filled up.
    """
    span = -(-num_keys // 64) * 64
    return span if span % 512 <= 192 else -(-span // 512) * 512


def attend_rows(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
    rules: Rules = PLAIN,
) -> torch.Tensor:
    """Attend with `query` over `keys` and `values` under an additive `mask`.

    Shapes: `query [n, kv_heads, rows, D]`, `keys [n, kv_heads, span, D]` and `values [n, kv_heads, span, E]`, `mask [n,
    1, rows or 1, span]`; rows are as in `group_heads`. Fewer than `MIN_ROWS` rows are padded with zeros for the kernel.
    Differentiable.
    """
    rows = query.shape[2]
    missing = MIN_ROWS - rows
    if missing > 0:
        query = functional.pad(query, (0, 0, 0, missing))
        mask = functional.pad(mask, (0, 0, 0, missing)) if mask.shape[2] == rows else mask
    if not rules.is_plain or keys.shape[-1] != values.shape[-1]:  # the kernel's keys and values have one size
        return attend_by_rules(query, keys, values, mask, scaling, rules)[:, :, :rows]
    mask = mask.expand(-1, 1, query.shape[2], -1)
    return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scaling)[:, :, :rows]


class InvariantAttention(PackedAttention):
    """Attention over packed runs with invariant rows, even if they share a prefix.

    Slower, but equal in every bit to an engine's attention with the same rows.

    Raises EngineError for tensors that are not on the CPU, the only device where this holds.
    """

    def _attend_run(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, rules: Rules
    ) -> torch.Tensor:
        if query.device.type != "cpu":
            raise EngineError(
                f"exact scoring needs the CPU, but the model is on {query.device}; use model.device='cpu' or "
                "PackedAttention"
            )
        return _attend_invariant(query, key, value, scaling, rules)


def _attend_invariant(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, rules: Rules
) -> torch.Tensor:
    """Compute causal attention of one run, invariantly; shapes as for `causal_attention`."""
    num_tokens, num_heads, _ = query.shape
    before = len(key) - num_tokens
    kv_heads = key.shape[1]
    tiles = []
    for start in range(0, num_tokens, TILE):
        rows = query[start : start + TILE]
        num_keys = before + start + len(rows)
        span = padded_span(num_keys)
        keys, values = (
            functional.pad(array[:num_keys].transpose(0, 1)[None], (0, 0, 0, span - num_keys)) for array in (key, value)
        )
        positions = torch.arange(before + start, num_keys, device=query.device)
        positions = positions.repeat_interleave(num_heads // kv_heads)[:, None]
        mask = hide(find_seen(positions, span, rules.window), query.dtype)
        output = attend_rows(group_heads(rows, kv_heads)[None], keys, values, mask[None, None], scaling, rules)
        tiles.append(ungroup_heads(output[0], len(rows)))
    return torch.cat(tiles)


def find_seen(positions: torch.Tensor, span: int, window: int | None) -> torch.Tensor:
    """Return which of `span` keys from position 0 on the tokens at `positions [..., 1]` see: a boolean `[...,
    span]`."""
    keys = torch.arange(span, device=positions.device)
    is_seen = keys <= positions
    return is_seen if window is None else is_seen & (keys > positions - window)
