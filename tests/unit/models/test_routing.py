"""Routers that take recorded experts: by hand, in every family, in every bit where nothing moved, with a gradient."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from small_model import CONFIG, MIXTURE, VOCAB
from transformers import PreTrainedModel

from turnwise.models.attention import PackedAttention
from turnwise.models.build import build_model
from turnwise.models.layers import recompute_layers
from turnwise.models.routing import (
    FAMILIES,
    ReplayedRouting,
    RoutingShape,
    find_routing,
    is_mixture,
    weigh_experts,
)

FAMILY_SIZES = {"mixtral": {"num_local_experts": 8}, "qwen2_moe": {"shared_expert_intermediate_size": 16}}
IDS = np.random.default_rng(3).integers(0, VOCAB, 24)


class Record:
    """What the routers of one forward pass choose."""

    def __init__(self) -> None:
        self.layers: dict[int, torch.Tensor] = {}

    def choose(self, layer: int, chosen: torch.Tensor) -> None:
        self.layers[layer] = chosen

    def experts(self) -> torch.Tensor:
        return torch.stack([self.layers[layer] for layer in sorted(self.layers)], dim=1)


def build(model_type: str = "qwen3_moe", seed: int = 1) -> PreTrainedModel:
    return build_model(model_type, {**MIXTURE, **FAMILY_SIZES.get(model_type, {})}, vocab_size=VOCAB, seed=seed)


def forward(model: PreTrainedModel, routing: Any = None) -> torch.Tensor:
    ids = torch.from_numpy(IDS)
    logits: torch.Tensor = model(
        input_ids=ids[None],
        position_ids=torch.arange(len(ids))[None],
        use_cache=False,
        attention_plan=PackedAttention([len(ids)]),
        routing=routing,
    ).logits[0]
    return logits


def record(model: PreTrainedModel) -> torch.Tensor:
    seen = Record()
    with torch.no_grad():
        forward(model, seen)
    return seen.experts()


def test_gate_weights_by_hand() -> None:
    """Logits ln 1, ln 2, ln 3, ln 4: the softmax is 0.1, 0.2, 0.3, 0.4. Experts 3 and 0 weigh 0.4 and 0.1, of their sum
    0.8 and 0.2. The router itself would have taken 3 and 2."""
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).log()
    experts = torch.tensor([[3, 0]])
    assert weigh_experts(logits, experts, normalised=False)[0].tolist() == pytest.approx([0.4, 0.1])
    assert weigh_experts(logits, experts, normalised=True)[0].tolist() == pytest.approx([0.8, 0.2])


def test_recorded_experts_are_taken_and_others_chosen() -> None:
    """Of three tokens the first has no record, the second another set, the third the same set in another order."""
    recorded = torch.tensor([[[255, 255]], [[0, 3]], [[2, 1]]], dtype=torch.uint8)
    replayed = ReplayedRouting(recorded)
    assert replayed.choose(0, torch.tensor([[4, 5], [0, 1], [1, 2]])).tolist() == [[4, 5], [0, 3], [2, 1]]
    assert replayed.moved.tolist() == [False, True, False]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_experts_that_a_router_took_give_the_same_bits_again(model_type: str) -> None:
    model = build(model_type)
    experts = record(model)
    assert find_routing(model) == RoutingShape(num_layers=2, num_chosen=2)
    assert experts.shape == (len(IDS), 2, 2)
    assert len(experts[:, 0].unique()) > 2, "routers tell tokens apart"
    routing = ReplayedRouting(experts)
    with torch.no_grad():
        assert torch.equal(forward(model, routing), forward(model))
    assert not routing.moved.any()


@pytest.mark.parametrize("model_type", FAMILIES)
def test_one_other_expert_changes_that_token_and_later_ones_only(model_type: str) -> None:
    model = build(model_type)
    experts = record(model)
    plain = experts.clone()
    unused = next(i for i in range(8) if i not in experts[10, 1])
    experts[10, 1, 0] = unused
    with torch.no_grad():
        one, other = forward(model, ReplayedRouting(plain)), forward(model, routing := ReplayedRouting(experts))
    assert routing.moved.nonzero().tolist() == [[10]]
    # An expert that computes one row more or less may round the others differently, as gpt-oss's do on some processors.
    changed = (one - other).abs().amax(dim=-1) > 1e-5
    assert not changed[:10].any()
    assert changed[10]


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_gradient_of_a_replayed_router_is_that_of_its_own_choice(model_type: str) -> None:
    """Where nothing moved, choosing and repeating are one function of the weights: equal gradients, of routers too."""
    one, other = build(model_type), build(model_type)
    forward(one).square().mean().backward()
    forward(other, ReplayedRouting(record(other))).square().mean().backward()
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), name  # type: ignore[arg-type]
    name = "router" if model_type == "gpt_oss" else "gate"
    router = one.get_submodule(f"model.layers.0.mlp.{name}").weight
    assert float(router.grad.abs().max()) > 0  # type: ignore[union-attr, operator]


def test_layers_that_are_computed_again_take_the_same_experts() -> None:
    """The backward pass runs after another forward pass, of other experts, has begun and ended."""
    kept, again = build(), build()
    recompute_layers(again)
    other = build(seed=2)
    experts = record(other)
    assert not torch.equal(experts, record(kept))
    for model in (kept, again):
        loss = forward(model, ReplayedRouting(experts)).square().mean()
        record(other)
        loss.backward()
    for (name, a), (_, b) in zip(kept.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), name  # type: ignore[arg-type]


def test_a_copy_of_a_model_follows_its_own_forward() -> None:
    model = build()
    experts = record(model)
    copied = copy.deepcopy(model)
    assert torch.equal(record(copied), experts)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_experts_agree_with_transformers_own(model_type: str) -> None:
    model = build(model_type)
    with torch.no_grad():
        ours = forward(model)
        model.set_experts_implementation("eager")
        theirs = forward(model)
    assert float((ours - theirs).abs().max()) < 2e-6


def test_dense_models_have_no_routing() -> None:
    model = build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)
    assert not is_mixture(model)
    assert find_routing(model) is None


def test_a_mixture_that_cannot_be_repeated_chooses_anew() -> None:
    """Its routers choose by groups and biases, which a softmax at recorded experts does not repeat."""
    sizes = {**CONFIG, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    sizes |= {"moe_intermediate_size": 16, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8}
    sizes |= {
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "first_k_dense_replace": 0,
        "head_dim": 8,
        "num_key_value_heads": 4,
    }
    model = build_model("deepseek_v3", sizes, vocab_size=VOCAB, seed=1)
    assert is_mixture(model)
    assert find_routing(model) is None
