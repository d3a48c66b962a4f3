"""A small model as the trainer sees it, and how tests of engines by other programs check what was sampled from it."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.core.types import Completion
from turnwise.models.attention import PackedAttention
from turnwise.models.build import build_model

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


@torch.no_grad()
def score(model: PreTrainedModel, prompt: Sequence[int], completion: Completion, temperature: float = 1.0) -> Any:
    """What the trainer says about a completion."""
    ids = [*prompt, *completion.token_ids.tolist()]
    plan, positions = PackedAttention([len(ids)]), torch.arange(len(ids))[None]
    output = model(input_ids=torch.tensor([ids]), position_ids=positions, attention_plan=plan, use_cache=False)
    logits = output.logits[0, len(prompt) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[len(prompt) :])[:, None])[:, 0].numpy()
