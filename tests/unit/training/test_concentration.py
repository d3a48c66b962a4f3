"""How concentrated distributions are, against a plain softmax of the model's own logits and by hand."""

import math

import pytest
import torch
from ranks_world import make_samples

from turnwise.core.batch import Wanted
from turnwise.models.build import build_model
from turnwise.training.concentration import (
    CONCENTRATIONS,
    compute_entropy,
    compute_self_certainty,
    compute_squared_mass,
    score_concentration,
)

SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize("shared_prefix", [False, True])
def test_every_concentration_is_that_of_a_plain_softmax(shared_prefix: bool) -> None:
    model = build_model("qwen3", {**SIZES, "num_key_value_heads": 1}, vocab_size=96, seed=0)
    samples, temperature = make_samples(1), 0.7
    scored = score_concentration(
        model, samples, temperature, CONCENTRATIONS.keys(), micro_batch_tokens=64, shared_prefix=shared_prefix
    )
    model.set_attn_implementation("eager")
    for index, sample in enumerate(samples):
        with torch.no_grad():
            logits = model(torch.tensor([sample.token_ids.tolist()])).logits[0].double() / temperature
        p = torch.softmax(logits, -1)
        predicted = torch.tensor(sample.loss_mask.tolist()).nonzero()[:, 0] - 1
        naive: dict[Wanted, torch.Tensor] = {
            "squared_mass": (p**2).sum(-1),
            "policy_entropy": -(p * p.log()).sum(-1),
            "self_certainty": logits.logsumexp(-1) - logits.mean(-1) - math.log(logits.shape[-1]),
        }
        for name, values in naive.items():
            assert scored[name][index] == pytest.approx(values[predicted].numpy(), abs=2e-5), name


def test_concentrations_by_hand() -> None:
    half = torch.tensor([[0.5, 0.25, 0.25]]).log()
    assert compute_squared_mass(half).item() == pytest.approx(0.375)  # 1/4 + 1/16 + 1/16
    assert compute_entropy(half).item() == pytest.approx(1.5 * math.log(2))  # 1/2 of 1 bit, 1/2 of 2 bits
    # -log 3 - (log 1/2 + 2 log 1/4) / 3 = -log 3 + 5/3 log 2
    assert compute_self_certainty(half).item() == pytest.approx(5 / 3 * math.log(2) - math.log(3))
    even = torch.zeros(1, 4).log_softmax(-1)
    assert compute_entropy(even).item() == pytest.approx(math.log(4))
    assert compute_self_certainty(even).item() == pytest.approx(0.0, abs=1e-6)


def test_a_token_that_cannot_be_sampled_is_no_infinity_and_no_nan() -> None:
    masked = torch.tensor([[0.0, 0.0, -math.inf]]).log_softmax(-1)
    assert compute_entropy(masked).item() == pytest.approx(math.log(2))
    assert compute_self_certainty(masked).item() == pytest.approx(0.0, abs=1e-6)
    far = torch.tensor([[0.0, -300.0]]).log_softmax(-1)  # its probability is 0 in float32, its logarithm is not
    assert compute_self_certainty(far).item() == pytest.approx(150 - math.log(2))
    assert math.isnan(compute_entropy(torch.tensor([[math.nan, 0.0]])).item())
    assert math.isnan(compute_self_certainty(torch.tensor([[math.nan, 0.0]])).item())
