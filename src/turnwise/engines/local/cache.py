"""Key-value memory of live conversations, and the attention plan of one engine step.

A conversation holds one slot from its first token to its release, so a token's keys and values are computed once
however many turns follow. The memory is one tensor per layer: `[slots, kv_heads, max_context, head_dim]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from turnwise.models.attention import PLAIN, Rules, attend_by_rules, causal_attention, hide
from turnwise.models.invariant import find_seen
from turnwise.models.shapes import LayerShape


class KVCache:
    """Keys and values of every slot."""

    def __init__(
        self,
        layers: Sequence[LayerShape],
        *,
        num_slots: int,
        max_context: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        def hold(kv_heads: int, dim: int) -> torch.Tensor:
            return torch.zeros(num_slots, kv_heads, max_context, dim, dtype=dtype, device=device)

        self.keys = [hold(shape.num_kv_heads, shape.key_dim) for shape in layers]
        self.values = [hold(shape.num_kv_heads, shape.value_dim) for shape in layers]
        self.max_context = max_context


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` new tokens of the conversation in `slot`, which already caches `start` tokens."""

    slot: int
    start: int
    count: int


class CachedAttention:
    """One engine step: single-token chunks first (decoding), then longer chunks (prompts and observations).

    The order of `chunks` is the order of their tokens in the flat batch. Tokens after them are padding (they keep
    the matrix shapes above a minimum) and attend to nothing."""

    def __init__(self, cache: KVCache, chunks: list[Chunk]) -> None:
        self._cache = cache
        self._num_decode = next((i for i, c in enumerate(chunks) if c.count > 1), len(chunks))
        self._long = chunks[self._num_decode :]
        decode = chunks[: self._num_decode]
        device = cache.keys[0].device
        self._slots = torch.tensor([c.slot for c in decode], dtype=torch.long, device=device)
        self._starts = torch.tensor([c.start for c in decode], dtype=torch.long, device=device)
        if decode:
            # Rounded up so that the reduction over keys is the same whatever else is in the batch.
            self._span = min(cache.max_context, -(-(max(c.start for c in decode) + 1) // 64) * 64)
            num_slots = max(c.slot for c in decode) + 1
            # Reading every slot in place beats copying the live ones, unless few are live.
            self._in_place = 2 * len(decode) >= num_slots
            rows = num_slots if self._in_place else len(decode)
            visible = torch.zeros(rows, dtype=torch.long, device=device)
            visible[self._slots if self._in_place else slice(None)] = self._starts + 1
            # A dead slot sees one (stale) token, so that its softmax stays finite; its row is never read.
            visible.clamp_(min=1)
            self._positions = visible[:, None] - 1
            self._biases: dict[int | None, torch.Tensor] = {}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        rules: Rules = PLAIN,
    ) -> torch.Tensor:
        """See `models.attention.AttentionPlan`. Writes the new keys and values into the cache."""
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        out = query.new_empty(*query.shape[:2], value.shape[-1])
        n = self._num_decode
        if n:
            keys[self._slots, :, self._starts] = key[:n]
            values[self._slots, :, self._starts] = value[:n]
            out[:n] = self._decode(query[:n], keys, values, scaling, rules)
        at = n
        for chunk in self._long:
            end = chunk.start + chunk.count
            keys[chunk.slot, :, chunk.start : end] = key[at : at + chunk.count].transpose(0, 1)
            values[chunk.slot, :, chunk.start : end] = value[at : at + chunk.count].transpose(0, 1)
            out[at : at + chunk.count] = causal_attention(
                query[at : at + chunk.count],
                keys[chunk.slot, :, :end].transpose(0, 1),
                values[chunk.slot, :, :end].transpose(0, 1),
                scaling,
                rules,
            )
            at += chunk.count
        out[at:] = 0
        return out

    def _decode(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float, rules: Rules
    ) -> torch.Tensor:
        """Attend with one query token per live slot: `[n, heads, D]` to `[n, heads, E]`."""
        n, heads, dim = query.shape
        kv_heads = keys.shape[1]
        grouped = query.reshape(n, kv_heads, heads // kv_heads, dim)
        if self._in_place:
            rows = len(self._positions)
            full = query.new_zeros(rows, kv_heads, heads // kv_heads, dim)
            full[self._slots] = grouped
            k, v = keys[:rows, :, : self._span], values[:rows, :, : self._span]
        else:
            full = grouped
            k, v = keys[self._slots, :, : self._span], values[self._slots, :, : self._span]
        bias = self._find_bias(rules.window, query.dtype)
        if rules.is_plain:
            out = torch.matmul((torch.matmul(full * scaling, k.transpose(2, 3)) + bias).softmax(-1), v)
        else:
            out = attend_by_rules(full, k, v, bias, scaling, rules)
        return (out[self._slots] if self._in_place else out).reshape(n, heads, -1)

    def _find_bias(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """Return the additive mask `[rows, 1, 1, span]` of layers with this window."""
        if window not in self._biases:
            self._biases[window] = hide(find_seen(self._positions, self._span, window), dtype)[:, None, None]
        return self._biases[window]
