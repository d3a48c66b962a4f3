from __future__ import annotations

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.runs.model_path import settle_model
from turnwise.testing import build_tiny_model


def settle(model: PreTrainedModel, length: int) -> PreTrainedModel:
    # An engine of its own needs no check of steps here.
    limits = [f"engine.max_context={length}", f"rollout.max_tokens={length}", "rollout.max_turn_tokens=8"]
    server = ["engine.kind=server", 'engine.options={url="http://127.0.0.1:1"}']
    return settle_model(load_config([], [*limits, *server]), model)


def test_a_context_beyond_the_positions_that_a_model_has_learned_is_refused() -> None:
    sizes = {"vocab_size": 300, "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    assert settle(model, 64) is model
    with pytest.raises(ConfigError, match=r"max_context=65 is longer than the 64 positions .* \(transformer\.wpe\)"):
        settle(model, 65)
    rope = build_tiny_model()
    assert settle(rope, rope.config.max_position_embeddings + 1) is rope
