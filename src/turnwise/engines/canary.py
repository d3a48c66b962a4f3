"""The canary: scores of a few fixed tokens show whether an engine computes with the weights it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.pictures import PlacedImages
from turnwise.core.positions import number_positions
from turnwise.core.types import FloatArray, Prompt, to_ids
from turnwise.models.forward import Runs, compute_logits

NUM_CANARY_TOKENS = 48
"""Tokens of a canary; of a longer canary, the number of tokens at its end that are compared."""
WINDOWS = ("sliding_window", "attention_chunk_size")
"""Config fields of a model that limit how far back its layers see."""
WARM = 0.5
"""The temperature at which the token after the canary is sampled."""
BOUNDS = {"float32": 1e-4, "bfloat16": 0.25, "float16": 0.05}
"""Largest mean distance, in nats, between the two sides' log-probabilities, by dtype."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Canary:
    """The canary's tokens, and what the trainer's model computes for them."""

    token_ids: tuple[int, ...]
    logprobs: FloatArray
    """`[N - 1]` log-probabilities of every token but the first."""
    warm_logprobs: FloatArray
    """`[V]` log-probabilities of the token after the canary, at temperature `WARM`."""
    dtype: str

    def check_scores(self, scores: Sequence[float], who: str) -> None:
        """Raise EngineError if the scores from `who` differ too much, so that it must compute with other weights."""
        gaps, bound = np.abs(np.asarray(scores) - self.logprobs), BOUNDS[self.dtype]
        gap = float(gaps[-NUM_CANARY_TOKENS:].mean())
        if not gap <= bound:
            raise EngineError(
                f"{who} scores the canary {gap:.2g} nats off on average, but rounding explains at most {bound:g}: it "
                "computes with other weights than it was given, or with another model than the trainer"
            )

    def check_sample(self, token: int, logprob: float, who: str) -> None:
        """Raise EngineError if `who` reports, for a token sampled at `WARM`, a log-probability from another
        distribution."""
        gap, bound = abs(logprob - float(self.warm_logprobs[token])), 4 * BOUNDS[self.dtype]
        if not gap <= bound:
            raise EngineError(
                f"{who} reports a log-probability {gap:.2g} nats off for a token sampled at temperature {WARM}, but "
                f"rounding explains at most {bound:g}: its log-probabilities do not belong to the distribution that it "
                "samples from"
            )


def count_tokens(model: PreTrainedModel, max_context: int) -> int:
    """Return how many tokens a canary needs to show what every layer sees: `NUM_CANARY_TOKENS` more than the longest
    window that a sequence of `max_context` tokens crosses, and few enough that one more can be sampled."""
    config = model.config.get_text_config()
    windows = [getattr(config, name, None) or 0 for name in WINDOWS]
    crossed = max((window for window in windows if window < max_context), default=0)
    return min(crossed + NUM_CANARY_TOKENS, max(NUM_CANARY_TOKENS, max_context - 1))


def score_canary(model: PreTrainedModel, num_tokens: int = NUM_CANARY_TOKENS) -> Canary:
    """Score a fixed sequence of tokens, spread over the vocabulary, with `model`."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.get_text_config().vocab_size, (num_tokens,), generator=generator)
    return score_prompt(model, Prompt(token_ids=to_ids(ids.numpy())))


@torch.no_grad()
def score_prompt(model: PreTrainedModel, prompt: Prompt) -> Canary:
    """Score a prompt with `model`, which sees its pictures."""
    num_tokens = len(prompt.token_ids)
    ids = torch.from_numpy(prompt.token_ids.astype(np.int64))
    everything = torch.arange(num_tokens, device=model.device)
    sources = {span.start + k: (span.digest, span.offset + k) for span in prompt.images for k in range(span.length)}
    runs = Runs(
        token_ids=ids.to(model.device),
        positions=torch.from_numpy(number_positions(num_tokens, prompt.images)).to(model.device),
        lengths=[num_tokens],
        seen=None,
        num_seen=[num_tokens],
        images=PlacedImages.of(sources) if sources else None,
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
