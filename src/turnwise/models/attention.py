"""The attention function that Turnwise registers with transformers, and the plan for packed sequences.

All forward passes run on tokens laid end to end, shape `[1, T]`, without padding. A *plan* object instead of a mask
says which token attends to which. It is passed through the model's own forward as the keyword `attention_plan`:
`PackedAttention` here for training and scoring, `CachedAttention` in engines/local for sampling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch.nn import functional
from transformers import AttentionInterface

from turnwise.core.errors import EngineError
from turnwise.models.routing import Routing, follow

ATTENTION_NAME = "turnwise"


class AttentionPlan(Protocol):
    """Which token attends to which in one forward pass."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """Compute the output `[T, heads, D]` of the new tokens.

        `query` is `[T, heads, D]`, `key` and `value` are `[T, kv_heads, D]`.
        """
        ...


def _attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    attention_plan: AttentionPlan | None = None,
    routing: Routing | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Compute the output `[1, T, heads, D]` that transformers expects from `query [1, heads, T, D]`.

    `routing` is for the router of the same layer (see `models.routing`). Raises EngineError without a plan.
    """
    if attention_plan is None:
        raise EngineError(
            "this model runs with Turnwise's attention and needs an attention_plan; call it through "
            "training.forward or an engine"
        )
    if dropout or sliding_window is not None:
        raise EngineError(
            f"attention dropout ({dropout}) and sliding windows ({sliding_window}) are not supported; disable them "
            "in model.config"
        )
    follow(routing)
    out = attention_plan.attend(
        int(module.layer_idx),  # type: ignore[arg-type]
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scaling,
    )
    return out.unsqueeze(0), None


def register_attention() -> None:
    """Register `attn_implementation="turnwise"` with transformers. Idempotent."""
    AttentionInterface.register(ATTENTION_NAME, _attention_forward)


def causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
    """Compute causal attention of one sequence.

    `[n, heads, D]` queries over `[m, kv_heads, D]` keys, m >= n, aligned at the end.
    """
    num_query, num_key = query.shape[0], key.shape[0]
    mask = None
    if num_query != num_key:
        mask = torch.ones(num_query, num_key, dtype=torch.bool, device=query.device).tril(num_key - num_query)
    out = functional.scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        key.transpose(0, 1).unsqueeze(0),
        value.transpose(0, 1).unsqueeze(0),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out[0].transpose(0, 1)


class PackedAttention:
    """Attend within runs of tokens laid end to end.

    Each token attends to the path to its run, and to its run up to itself. A run without a path is a whole sequence.
    Otherwise runs are the branches of a prefix tree: the keys and values of each path are gathered, and each pair of
    tokens is computed once.
    """

    def __init__(self, lengths: list[int], seen: torch.Tensor | None = None, num_seen: list[int] | None = None) -> None:
        """Take the number of tokens of each run and the tokens each run attends to.

        `lengths` are the tokens per run; `seen` are the indices of the tokens each run attends to, its own last, run
        after run, and `num_seen` how many there are per run (see `MicroBatch`). None if runs attend to themselves only.
        """
        self._lengths = lengths
        self._seen = seen
        self._num_seen = num_seen or lengths

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """See `AttentionPlan`."""
        return torch.cat([self._attend_run(q, k, v, scaling) for q, k, v in self._split(query, key, value)])

    def _split(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield queries, keys and values of each run."""
        if self._seen is not None:
            key, value = key.index_select(0, self._seen), value.index_select(0, self._seen)
        return zip(query.split(self._lengths), key.split(self._num_seen), value.split(self._num_seen), strict=True)

    def _attend_run(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float) -> torch.Tensor:
        return causal_attention(query, key, value, scaling)
