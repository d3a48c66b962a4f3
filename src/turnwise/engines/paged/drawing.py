"""Draws tokens from a step's logits, for each request by its own settings, random numbers and grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from turnwise.core.errors import EngineError, boundary
from turnwise.core.types import BoolArray
from turnwise.engines.paged.scheduler import Item, Request
from turnwise.engines.sampling import sample_tokens


@dataclass(frozen=True, slots=True)
class Drawn:
    """One sampled token, or the reason why there is none."""

    token: int
    logprob: float
    full_logprob: float | None
    """Log-probability without the grammar; None for a request that has none."""
    error: EngineError | None


@torch.inference_mode()
def draw_tokens(items: Sequence[Item], logits: torch.Tensor) -> list[list[Drawn]]:
    """Draw for each item the token after its last known one, and one after each drafted token in case that is right.

    `logits [R, V]`: the rows of all items in order, one row, plus one per drafted token. A row's random number depends
    only on its place in the reply: a draft is right when it equals the token drawn, so drafting changes no sample. The
    chance of acceptance is the token's probability, the highest that any acceptance rule reaches for a single drafted
    token."""
    rows = [(item.request, place) for item in items for place in range(1 + len(item.draft))]
    if not rows:
        return []
    # One number that is not finite makes a row's sum so.
    finite = torch.isfinite(logits.sum(-1)).tolist()
    allowed, errors = _find_allowed(rows, finite)
    randoms = torch.tensor(
        [r.uniforms[r.num_sampled + place] for r, place in rows], dtype=torch.float64, device=logits.device
    )
    full: list[float | None] = [None] * len(rows)
    whole = logits
    if allowed:
        logits = logits.clone()
        for row, mask in allowed.items():
            logits[row].masked_fill_(~torch.from_numpy(mask).to(logits.device), float("-inf"))
    token_ids, logprobs = sample_tokens(logits, [request.params for request, _ in rows], randoms)
    for row in allowed:
        temperature = rows[row][0].params.temperature or 1.0
        full[row] = float((whole[row].float() / temperature).log_softmax(-1)[token_ids[row]])
    drawn = [Drawn(*each) for each in zip(token_ids.tolist(), logprobs.tolist(), full, errors, strict=True)]
    remaining = iter(drawn)
    return [[next(remaining) for _ in range(1 + len(item.draft))] for item in items]


def _find_allowed(
    rows: Sequence[tuple[Request, int]], finite: Sequence[bool]
) -> tuple[dict[int, BoolArray], list[EngineError | None]]:
    """Return masks `[V]` of the rows whose grammar allows some token, and the error of each row whose grammar does
    not."""
    allowed: dict[int, BoolArray] = {}
    errors: list[EngineError | None] = []
    for row, (request, place) in enumerate(rows):
        error = None
        if not finite[row]:
            error = EngineError(
                f"logits are not finite after {len(request.tokens) + place} tokens; the weights may have diverged"
            )
        elif request.guide is not None:
            try:
                with boundary(EngineError, f"following the grammar of '{request.session}'"):
                    mask = request.guide.allowed()
                if mask.any():
                    allowed[row] = mask
                else:
                    error = EngineError(
                        f"the grammar of '{request.session}' allows no token after {request.num_sampled} sampled ones: "
                        "no text satisfies it"
                    )
            except EngineError as cause:
                error = cause
        errors.append(error)
    return allowed, errors
