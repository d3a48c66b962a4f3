"""A small model as the trainer sees it, and how tests of engines by other programs check what was sampled from it."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.core.types import Completion, Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.training.forward import score_logprobs

VOCAB = 96
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "initializer_range": 0.2,
    "max_position_embeddings": 256,
}
PROMPT = list(range(3, 43))


def make_model(*, tied: bool = True) -> PreTrainedModel:
    return build_model("qwen3", {**SHAPE, "tie_word_embeddings": tied}, vocab_size=VOCAB, seed=1)


def change(model: PreTrainedModel, *, seed: int) -> None:
    """A step of a trainer: every weight moves."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def decode(ids: Sequence[int]) -> str:
    return "".join(f"<{token}>" for token in ids)


def score(model: PreTrainedModel, prompt: Sequence[int], completion: Completion, temperature: float = 1.0) -> Any:
    """What the trainer says about a completion."""
    ids = [*prompt, *completion.token_ids.tolist()]
    is_sampled = [False] * len(prompt) + [True] * len(completion.token_ids)
    nothing = to_floats([0.0] * len(ids))
    sample = Sample(
        token_ids=to_ids(ids),
        loss_mask=to_mask(is_sampled),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id="served"),
    )
    return score_logprobs(model, [sample], temperature, micro_batch_tokens=1024)[0]
