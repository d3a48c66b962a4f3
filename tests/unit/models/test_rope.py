"""Ropes whose frequencies depend on the length: every sequence by its own, or all by one that is pinned."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.models.attention import PackedAttention
from turnwise.models.build import build_model
from turnwise.models.check import lay_packed, lay_shared
from turnwise.models.forward import can_share, compute_logits
from turnwise.models.paths import is_fast
from turnwise.models.rope import as_long_as, depends_on_length, find_pinned, pin_length

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "longrope": (
        "phi3",
        {
            "max_position_embeddings": 256,
            "original_max_position_embeddings": 24,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 24,
                "short_factor": [1.0] * 8,
                "long_factor": [4.0] * 8,
            },
        },
    ),
    "dynamic": (
        "llama",
        {
            "max_position_embeddings": 24,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
        },
    ),
}
LENGTHS = (20, 30, 50, 24, 25)
"""Some within the first 24 tokens, some beyond."""


def build(kind: str) -> PreTrainedModel:
    model_type, options = KINDS[kind]
    return build_model(model_type, {**SIZES, **options}, vocab_size=97, seed=1)


def compute_alone(kind: str, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of transformers' own model, which has turned nothing before."""
    model_type, options = KINDS[kind]
    config = AutoConfig.for_model(model_type, **{**SIZES, **options, "vocab_size": 97})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.load_state_dict(build(kind).state_dict())
    with torch.no_grad():
        logprobs: torch.Tensor = model(input_ids=ids[None]).logits[0].log_softmax(-1)
    return logprobs


def draw(lengths: tuple[int, ...] = LENGTHS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(2, 97, (length,), generator=generator) for length in lengths]


@pytest.mark.parametrize("kind", KINDS)
def test_every_sequence_is_turned_by_its_own_length_beside_any_neighbour(kind: str) -> None:
    model, sequences = build(kind), draw()
    assert is_fast(model)
    assert depends_on_length(model)
    runs, places = lay_packed(sequences)
    with torch.no_grad():
        packed = compute_logits(model, runs, torch.arange(len(runs.token_ids)))[0].log_softmax(-1)
    for ids, place in zip(sequences, places, strict=True):
        assert torch.allclose(packed[place], compute_alone(kind, ids), atol=5e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_without_it_a_short_sequence_is_turned_as_its_longest_neighbour(kind: str) -> None:
    """What transformers does with a batch: the fault that this prevents is no matter of rounding."""
    (short, long), model = draw((20, 50)), build(kind)
    with as_long_as(model, 50), torch.no_grad():
        runs, places = lay_packed([short, long])
        packed = compute_logits(model, runs, torch.arange(70))[0].log_softmax(-1)
    assert (packed[places[0]] - compute_alone(kind, short)).abs().max() > 0.1
    assert torch.allclose(packed[places[1]], compute_alone(kind, long), atol=5e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pinned_length_is_that_of_a_sequence_so_long(kind: str) -> None:
    model, (ids,) = build(kind), draw((60,))
    assert pin_length(model, 60)
    assert not depends_on_length(model)
    assert find_pinned(model) == 60
    expected = compute_alone(kind, ids)
    with torch.no_grad():
        # Its beginning too: a token has the same output whatever follows, so sampler and trainer agree.
        for length in (10, 24, 25, 60):
            arguments: dict[str, Any] = {"attention_plan": PackedAttention([length]), "use_cache": False}
            positions = torch.arange(length)[None]
            logits = model(input_ids=ids[None, :length], position_ids=positions, **arguments).logits[0]
            assert torch.allclose(logits.log_softmax(-1), expected[:length], atol=5e-5, rtol=0)


def test_a_length_within_the_first_window_pins_the_short_frequencies() -> None:
    model, (ids,) = build("longrope"), draw((24,))
    assert not pin_length(model, 24)
    with torch.no_grad():
        runs, _ = lay_packed([ids])
        logits, _ = compute_logits(model, runs, torch.arange(24))
    assert torch.allclose(logits.log_softmax(-1), compute_alone("longrope", ids), atol=5e-5, rtol=0)


def test_sequences_that_would_be_turned_apart_share_nothing() -> None:
    model = build("longrope")
    assert not can_share(model)
    runs, _ = lay_shared(draw((29, 21)))
    with pytest.raises(EngineError, match="use shared_prefix=False, or fix one length"):
        compute_logits(model, runs, torch.arange(5))
    pin_length(model, 64)
    assert can_share(model)
    compute_logits(model, runs, torch.arange(5))


def test_other_ropes_are_left_alone() -> None:
    model = build_model("qwen3", SIZES, vocab_size=97, seed=1)
    assert not pin_length(model, 1 << 20)
    assert not depends_on_length(model)
    assert find_pinned(model) is None
