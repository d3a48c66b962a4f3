"""A canary: what a model says about a few tokens tells whether an engine computes with the weights it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import FloatArray
from turnwise.models.forward import Runs, compute_logits

NUM_CANARY_TOKENS = 48
"""Tokens of a canary, and of the end that is compared of a longer one."""
WINDOWS = ("sliding_window", "attention_chunk_size")
"""Names, in a model's config, of a length beyond which its layers see less."""
WARM = 0.5
"""The temperature at which the token after the canary is sampled."""
BOUNDS = {"float32": 1e-3, "bfloat16": 0.25, "float16": 0.05}
"""Largest mean distance, in nats, between the two sides' log-probabilities, by dtype."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Canary:
    """What the trainer's model says."""

    token_ids: tuple[int, ...]
    logprobs: FloatArray
    """`[N - 1]`, of every token but the first."""
    warm_logprobs: FloatArray
    """`[V]`, of every token that may come next, at the temperature `WARM`."""
    dtype: str

    def check_scores(self, scores: Sequence[float], who: str) -> None:
        """Raise EngineError where `who` scores the canary otherwise: it computes with other weights."""
        gaps, bound = np.abs(np.asarray(scores) - self.logprobs), BOUNDS[self.dtype]
        gap = float(gaps[-NUM_CANARY_TOKENS:].mean())
        if not gap <= bound:
            raise EngineError(
                f"{who} scores the canary {gap:.2g} nats off on average, at most {bound:g} is rounding: it computes "
                "with other weights than it was given, or another model than the trainer"
            )

    def check_sample(self, token: int, logprob: float, who: str) -> None:
        """Raise EngineError where `who` gives a token sampled at `WARM` the log-probability of another distribution."""
        gap, bound = abs(logprob - float(self.warm_logprobs[token])), 4 * BOUNDS[self.dtype]
        if not gap <= bound:
            raise EngineError(
                f"{who} gives a token sampled at temperature {WARM} a log-probability {gap:.2g} nats off, at most "
                f"{bound:g} is rounding: its log-probabilities are not of the distribution that it samples from"
            )


def count_tokens(model: PreTrainedModel, max_context: int) -> int:
    """How many tokens a canary has that shows what every layer sees: more by `NUM_CANARY_TOKENS` than the longest
    window that a sequence of `max_context` tokens crosses, and at most so many that one more can be sampled."""
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) or 0 for name in WINDOWS]
    crossed = max((window for window in windows if window < max_context), default=0)
    return min(crossed + NUM_CANARY_TOKENS, max(NUM_CANARY_TOKENS, max_context - 1))


@torch.no_grad()
def score_canary(model: PreTrainedModel, num_tokens: int = NUM_CANARY_TOKENS) -> Canary:
    """What `model` says about tokens spread over its vocabulary, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.get_text_config().vocab_size, (num_tokens,), generator=generator)
    everything = torch.arange(num_tokens, device=model.device)
    runs = Runs(
        token_ids=ids.to(model.device),
        positions=everything,
        lengths=[num_tokens],
        seen=None,
        num_seen=[num_tokens],
    )
    was_training = model.training
    model.eval()
    logits, _ = compute_logits(model, runs, everything)
    model.train(was_training)
    logits = logits.float().cpu()
    return Canary(
        token_ids=tuple(ids.tolist()),
        logprobs=torch.log_softmax(logits[:-1], dim=-1).gather(1, ids[1:, None])[:, 0].numpy(),
        warm_logprobs=torch.log_softmax(logits[-1] / WARM, dim=-1).numpy(),
        dtype=str(model.dtype).removeprefix("torch."),
    )
