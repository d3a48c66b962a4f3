"""One forward pass over a packed micro-batch: log-probabilities of its trained tokens."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from turnwise.batching.collate import MicroBatch
from turnwise.models.attention import PackedAttention


def compute_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`logprobs [K]` of the targets under the policy at `temperature`, and `entropy [K]`, both float32.

    `temperature` must be the one the tokens were sampled with, or ratios are wrong from the first step. Output rows that
    predict no trained token are never computed. The entropy carries a gradient only when asked to.
    """
    logits = model(
        input_ids=batch.token_ids[None],
        position_ids=batch.positions[None],
        use_cache=False,
        logits_to_keep=batch.predict_at,
        attention_plan=PackedAttention(batch.lengths),
    ).logits[0]
    distribution = (logits.float() / temperature).log_softmax(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(distribution.exp() * distribution).sum(-1)
    return distribution.gather(-1, batch.targets[:, None])[:, 0], entropy
