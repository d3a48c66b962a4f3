"""Draws one token per row of logits, each row by its own settings and random number."""

from __future__ import annotations

import torch

from turnwise.core.types import SamplingParams

BLOCK = 128
"""Tokens per block of the two-level inverse CDF."""


def sample_tokens(
    logits: torch.Tensor, params: list[SamplingParams], uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inverse-CDF sampling.

    Args:
        logits: `[B, V]`.
        params: B settings. Temperature 0 is greedy. Truncations apply after the temperature, in the order top-k, min-p,
        top-p, each
            on what the one before left, renormalised; ties at the border of top-k are all kept. No truncation at
            temperature 0.
        uniforms: `[B]` float64 in [0, 1). A row's token depends on its own row only.

    Returns:
        `token_ids [B]` (int64) and `logprobs [B]` (float32) under the distribution sampled from. A greedy row's
        log-probability is that of temperature 1: a point mass says nothing, and greedy completions are not trained on.
    """
    device = logits.device
    temperatures = torch.tensor([p.temperature if p.temperature > 0 else 1.0 for p in params], device=device)
    logprobs = (logits.float() / temperatures[:, None]).log_softmax(-1)
    cut = [i for i, p in enumerate(params) if p.temperature > 0 and _truncates(p)]
    if cut:
        logprobs[cut] = _truncate(logprobs[cut], [params[i] for i in cut])
    token_ids = _draw(logprobs.exp(), uniforms)
    greedy = [i for i, p in enumerate(params) if p.temperature <= 0]
    if greedy:
        token_ids[greedy] = logits[greedy].argmax(-1)
    return token_ids, logprobs.gather(-1, token_ids[:, None])[:, 0]


def _draw(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Find the token at which the cumulative mass first exceeds `uniform * total`: first its block, then its place in
    the block.

    Sums run in float64 over blocks of `BLOCK` tokens, so a row costs one pass over its probabilities and two short
    scans."""
    num_rows, size = probabilities.shape
    padded = torch.nn.functional.pad(probabilities, (0, -size % BLOCK)).view(num_rows, -1, BLOCK)
    masses = padded.sum(-1, dtype=torch.float64)
    cumulative = masses.cumsum(-1)
    threshold = uniforms[:, None] * cumulative[:, -1:]
    block = torch.minimum(torch.searchsorted(cumulative, threshold, right=True), _last_with_mass(cumulative))
    before = cumulative.gather(1, block) - masses.gather(1, block)
    inside = padded[torch.arange(num_rows, device=block.device), block[:, 0]].double().cumsum(-1)
    place = torch.searchsorted(inside, threshold - before, right=True)
    return (block * BLOCK + torch.minimum(place, _last_with_mass(inside)))[:, 0]


def _last_with_mass(cumulative: torch.Tensor) -> torch.Tensor:
    """Index of the last entry that adds mass, `[B, 1]`: used where rounding pushes a threshold past the end."""
    return (cumulative < cumulative[:, -1:]).sum(-1, keepdim=True)


def _truncates(params: SamplingParams) -> bool:
    return params.top_p < 1 or params.top_k > 0 or params.min_p > 0


def _truncate(logprobs: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """Return log-probabilities with -inf outside the kept set, renormalised inside."""
    device, size = logprobs.device, logprobs.shape[-1]
    if any(p.top_k > 0 for p in params):
        kept = torch.tensor([min(p.top_k, size) if p.top_k > 0 else size for p in params], device=device)
        border = logprobs.sort(dim=-1, descending=True).values.gather(-1, kept[:, None] - 1)
        logprobs = logprobs.masked_fill(logprobs < border, float("-inf")).log_softmax(-1)
    if any(p.min_p > 0 for p in params):
        share = torch.tensor([p.min_p for p in params], device=device)
        dropped = logprobs < logprobs.amax(-1, keepdim=True) + share.log()[:, None]
        logprobs = logprobs.masked_fill(dropped, float("-inf")).log_softmax(-1)
    if any(p.top_p < 1 for p in params):
        top_ps = torch.tensor([p.top_p if p.top_p < 1 else float("inf") for p in params], device=device)
        ordered, order = logprobs.sort(dim=-1, descending=True)
        mass = ordered.exp()
        before = mass.cumsum(-1) - mass
        dropped = torch.zeros_like(logprobs, dtype=torch.bool).scatter_(-1, order, before >= top_ps[:, None])
        logprobs = logprobs.masked_fill(dropped, float("-inf")).log_softmax(-1)
    return logprobs
