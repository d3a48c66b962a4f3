"""The attention function that Turnwise registers with transformers, and the plan for packed sequences.

All forward passes of the fast path run on tokens laid end to end, shape `[1, T]`, without padding. A *plan* object
instead of a mask says which token attends to which. It is passed through the model's own forward as the keyword
`attention_plan`: `PackedAttention` here for training and scoring, the plans of engines/ for sampling.

A layer's additions to plain causal attention (a sliding window, a soft cap, attention sinks) are passed to the plan as
`Rules`. Any other argument of the model that is not None is refused, never dropped: `models.paths` then lets the model
compute with its own attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional
from transformers import AttentionInterface

from turnwise.core.errors import EngineError
from turnwise.models.routing import ATTENTION_NAME, Routing, follow

SUMMED_KEYS = 512
"""Number of keys whose values one product sums; see `models.invariant.padded_span`."""
IGNORED = frozenset({"position_ids", "cache_position", "use_cache", "output_router_logits", "logits_to_keep"})
"""Arguments that some models pass to attention although it does not read them: positions are already applied to the
queries and keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """A layer's additions to causal attention."""

    window: int | None = None
    """Number of keys that a token sees, including its own; None: all before it."""
    softcap: float | None = None
    """Scores are `softcap * tanh(score / softcap)` (Gemma 2, arXiv 2408.00118)."""
    sinks: torch.Tensor | None = None
    """`[heads]` scores that take part in each head's softmax without a value (gpt-oss, arXiv 2508.10925)."""

    @property
    def is_plain(self) -> bool:
        """Whether scores are plain dot products, so that torch's own kernels compute them."""
        return self.softcap is None and self.sinks is None


PLAIN = Rules()


class AttentionPlan(Protocol):
    """Which token attends to which in one forward pass."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        rules: Rules = PLAIN,
    ) -> torch.Tensor:
        """Compute the output `[T, heads, E]` of the new tokens.

        `query` is `[T, heads, D]`, `key` `[T, kv_heads, D]` and `value` `[T, kv_heads, E]`.
        """
        ...


def _attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    attention_plan: AttentionPlan | None = None,
    routing: Routing | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute the output `[1, T, heads, E]` that transformers expects from `query [1, heads, T, D]`.

    `scaling` None is one over the root of D. `routing` is for the router of the same layer (see `models.routing`).
    Raises EngineError without a plan, and for every unknown argument that is not None.
    """
    if attention_plan is None:
        raise EngineError(
            "this model uses Turnwise's attention and needs an attention_plan; call it through models.forward or an "
            "engine"
        )
    others = {name: given for name, given in others.items() if given is not None and name not in IGNORED}
    if others.pop("is_causal", True) is False:
        raise EngineError("attention to later tokens (is_causal=False) cannot be packed")
    if others.pop("output_attentions", False) or dropout:
        raise EngineError(f"attention dropout ({dropout}) and output_attentions cannot be packed")
    if attention_mask is not None:
        others["attention_mask"] = attention_mask
    if others:
        raise EngineError(
            f"{type(module).__name__} passes {', '.join(sorted(others))}, which packed attention does not support"
        )
    follow(routing)
    out = attention_plan.attend(
        int(module.layer_idx),  # type: ignore[arg-type]
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        PLAIN
        if sliding_window is None and softcap is None and s_aux is None
        else Rules(sliding_window, softcap, None if s_aux is None else s_aux.reshape(-1)),
    )
    return out.unsqueeze(0), None


def register_attention() -> None:
    """Register `attn_implementation="turnwise"` with transformers. Idempotent."""
    AttentionInterface.register(ATTENTION_NAME, _attention_forward)


def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, rules: Rules = PLAIN
) -> torch.Tensor:
    """Compute causal attention of one sequence.

    `[n, heads, D]` queries over `[m, kv_heads, D]` keys and `[m, kv_heads, E]` values, m >= n, aligned at the end.
    """
    num_query, num_key = query.shape[0], key.shape[0]
    mask = None
    window = rules.window if rules.window is not None and rules.window < num_key else None
    if num_query != num_key or window is not None or not rules.is_plain:
        mask = torch.ones(num_query, num_key, dtype=torch.bool, device=query.device).tril(num_key - num_query)
        if window is not None:
            mask &= ~torch.ones_like(mask).tril(num_key - num_query - window)
    if mask is not None and not rules.is_plain:
        return _attend_grouped(query, key, value, hide(mask, query.dtype), scaling, rules)
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


def _attend_grouped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float, rules: Rules
) -> torch.Tensor:
    """`causal_attention` under an additive `mask [n, m]`, by `attend_by_rules`."""
    num_query, num_heads, _ = query.shape
    kv_heads = key.shape[1]
    out = attend_by_rules(
        group_heads(query, kv_heads)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        mask.repeat_interleave(num_heads // kv_heads, dim=0)[None, None],
        scaling,
        rules,
    )
    return ungroup_heads(out[0], num_query)


def group_heads(query: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """Reshape `[n, heads, D]` to `[kv_heads, n * repeats, D]`: a row per token and head, for the heads that share
    keys."""
    grouped: torch.Tensor = query.unflatten(1, (kv_heads, -1)).transpose(0, 1).flatten(1, 2)
    return grouped


def ungroup_heads(rows: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Reshape `[kv_heads, n * repeats, E]` to `[n, heads, E]`."""
    heads: torch.Tensor = rows.unflatten(1, (num_tokens, -1)).transpose(0, 1).flatten(1, 2)
    return heads


def hide(is_seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a boolean mask to an additive one: 0 where a key is seen, else -inf."""
    return torch.zeros(is_seen.shape, dtype=dtype, device=is_seen.device).masked_fill_(~is_seen, float("-inf"))


def attend_by_rules(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scaling: float, rules: Rules
) -> torch.Tensor:
    """Attend under a soft cap or with sinks, which torch's kernels lack. Differentiable.

    Shapes: `query [n, kv_heads, rows, D]` with a row per token and head as in `group_heads`, `keys [n, kv_heads, span,
    D]`, `values [n, kv_heads, span, E]`, additive `mask [n, 1, rows or 1, span]`; returns `[n, kv_heads, rows, E]`. The
    softmax is in float32 for shorter formats. The values of `SUMMED_KEYS` keys are summed at a time, so that a row does
    not depend on how many masked keys follow.
    """
    scores = torch.matmul(query, keys.transpose(2, 3)) * scaling
    if rules.softcap is not None:
        scores = (scores / rules.softcap).tanh() * rules.softcap
    scores = (scores + mask).to(torch.float64 if scores.dtype == torch.float64 else torch.float32)
    if rules.sinks is None:
        weights = scores.softmax(-1)
    else:
        sinks = _lay_sinks(rules.sinks, *scores.shape[1:3]).to(scores.dtype)
        largest = torch.maximum(scores.amax(-1, keepdim=True), sinks).detach()
        exponentials = (scores - largest).exp()
        weights = exponentials / (exponentials.sum(-1, keepdim=True) + (sinks - largest).exp())
    out: torch.Tensor | None = None
    for weight, value in zip(
        weights.to(values.dtype).split(SUMMED_KEYS, -1), values.split(SUMMED_KEYS, 2), strict=True
    ):
        part = torch.matmul(weight, value)
        out = part if out is None else out + part
    assert out is not None
    return out


def _lay_sinks(sinks: torch.Tensor, kv_heads: int, rows: int) -> torch.Tensor:
    """Expand `[heads]` to `[1, kv_heads, rows, 1]`; surplus rows repeat some."""
    by_group = sinks.view(kv_heads, -1)
    return by_group.repeat(1, -(-rows // by_group.shape[1]))[None, :, :rows, None]


class PackedAttention:
    """Attend within runs of tokens laid end to end.

    Each token attends to the path that leads to its run, and to its run up to itself. A run without a path is a whole
    sequence. Otherwise runs are the branches of a prefix tree: the keys and values of each path are gathered, and each
    pair of tokens is computed once.
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
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        rules: Rules = PLAIN,
    ) -> torch.Tensor:
        """See `AttentionPlan`."""
        return torch.cat([self._attend_run(q, k, v, scaling, rules) for q, k, v in self._split(query, key, value)])

    def _split(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield queries, keys and values of each run."""
        if self._seen is not None:
            key, value = key.index_select(0, self._seen), value.index_select(0, self._seen)
        return zip(query.split(self._lengths), key.split(self._num_seen), value.split(self._num_seen), strict=True)

    def _attend_run(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, rules: Rules
    ) -> torch.Tensor:
        return causal_attention(query, key, value, scaling, rules)
