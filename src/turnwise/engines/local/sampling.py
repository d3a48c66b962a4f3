"""Drawing one token per row from logits, with each row's own temperature, top-p and random number."""

from __future__ import annotations

import torch


def sample_tokens(
    logits: torch.Tensor, temperatures: torch.Tensor, top_ps: torch.Tensor, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inverse-CDF sampling.

    Args:
        logits: `[B, V]`.
        temperatures: `[B]`; 0 is greedy.
        top_ps: `[B]` in (0, 1]; the smallest set of most likely tokens whose mass reaches it is kept and renormalised.
        uniforms: `[B]` float64 in [0, 1), one random number per row. A row's token depends on its own row only.

    Returns:
        `token_ids [B]` (int64) and `logprobs [B]` (float32) under the distribution sampled from. A greedy row's log-probability
        is that of temperature 1: a point mass says nothing, and greedy completions are not trained on.
    """
    greedy = temperatures <= 0
    scaled = logits.float() / torch.where(greedy, torch.ones_like(temperatures), temperatures)[:, None]
    logprobs = scaled.log_softmax(-1)
    if bool((top_ps < 1).any()):
        logprobs = _truncate(logprobs, torch.where(greedy, torch.ones_like(top_ps), top_ps))
    cumulative = logprobs.double().exp().cumsum(-1)
    threshold = uniforms[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)
    token_ids = torch.where(greedy, logits.argmax(-1), drawn)
    return token_ids, logprobs.gather(-1, token_ids[:, None])[:, 0]


def _truncate(logprobs: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    """Nucleus sampling: -inf outside the kept set, renormalised inside."""
    ordered, order = logprobs.sort(dim=-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    dropped = torch.zeros_like(logprobs, dtype=torch.bool).scatter_(-1, order, before >= top_ps[:, None])
    return logprobs.masked_fill(dropped, float("-inf")).log_softmax(-1)
