"""A canary: what a model says about a few tokens tells whether an engine computes with the weights it was given."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from turnwise.models.attention import PackedAttention

NUM_CANARY_TOKENS = 48
Canary = tuple[Sequence[int], Sequence[float]]
"""Token ids, and the log-probability of each but the first."""


@torch.no_grad()
def score_canary(model: PreTrainedModel) -> Canary:
    """What `model` says about tokens spread over its vocabulary, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (NUM_CANARY_TOKENS,), generator=generator)
    positions = torch.arange(NUM_CANARY_TOKENS)
    was_training = model.training
    model.eval()
    logits = model(
        input_ids=ids[None].to(model.device),
        position_ids=positions[None].to(model.device),
        attention_plan=PackedAttention([NUM_CANARY_TOKENS]),
        use_cache=False,
    ).logits[0, :-1]
    model.train(was_training)
    logprobs = torch.log_softmax(logits.float(), dim=-1).cpu().gather(1, ids[1:, None])[:, 0]
    return ids.tolist(), logprobs.tolist()
