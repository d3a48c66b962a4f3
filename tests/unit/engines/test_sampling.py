"""Drawing tokens: by hand, and against the plain inverse CDF."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.types import SamplingParams
from turnwise.engines.sampling import sample_tokens


def test_greedy_top_p_and_inverse_cdf_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]] * 5))
    plain = SamplingParams(max_tokens=1)
    params = [
        plain,
        plain,
        plain,
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, top_p=0.6),
    ]
    # u in [0, .5) is token 0, [.5, .8) token 1, [.8, 1) token 2. Greedy takes 0. Top-p 0.6 keeps 0 and 1 renormalised
    # to 5/8, 3/8.
    uniforms = torch.tensor([0.49, 0.51, 0.81, 0.99, 0.99], dtype=torch.float64)
    ids, logprobs = sample_tokens(logits, params, uniforms)
    assert ids.tolist() == [0, 1, 2, 0, 1]
    assert logprobs.exp().tolist() == pytest.approx([0.5, 0.3, 0.2, 0.5, 0.375])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        # The two likeliest of .5 .3 .2.
        ({"top_k": 2}, [5 / 8, 3 / 8, 0.0]),
        # At least half as likely as the likeliest: .25, so .3 stays and .2 goes.
        ({"min_p": 0.5}, [5 / 8, 3 / 8, 0.0]),
        ({"min_p": 0.7}, [1.0, 0.0, 0.0]),
        # Top-k leaves 5/8, 3/8; top-p 0.6 is reached by the first of them (5/8), but not by 0.5 of the whole.
        ({"top_k": 2, "top_p": 0.6}, [1.0, 0.0, 0.0]),
        ({}, [0.5, 0.3, 0.2]),
    ],
)
def test_truncations_by_hand(params: dict[str, float], expected: list[float]) -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]]))
    settings_ = SamplingParams(max_tokens=1, **params)  # type: ignore[arg-type]
    mass = [0.0, 0.0, 0.0]
    grid = 400
    for k in range(grid):
        ids, logprobs = sample_tokens(logits, [settings_], torch.tensor([(k + 0.5) / grid], dtype=torch.float64))
        token = int(ids.item())
        mass[token] += 1 / grid
        assert logprobs.exp().item() == pytest.approx(expected[token], rel=1e-5)
    # A grid of 400 places a border within one cell.
    assert mass == pytest.approx(expected, abs=1.01 / grid)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 700), st.floats(0.2, 3.0))
def test_the_two_level_scan_draws_what_one_long_scan_draws(seed: int, size: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(6, size)) * 4).float()
    uniforms = torch.from_numpy(rng.random(6))
    uniforms[0] = 0.0
    uniforms[1] = 1.0 - 2.0**-53
    ids, logprobs = sample_tokens(logits, [SamplingParams(max_tokens=1, temperature=temperature)] * 6, uniforms)
    probabilities = (logits / torch.tensor(temperature)).log_softmax(-1).exp().double()
    cumulative = probabilities.cumsum(-1)
    for row, token in enumerate(ids.tolist()):
        below = cumulative[row, token - 1].item() if token else 0.0
        target = uniforms[row].item() * cumulative[row, -1].item()
        # Summing blocks first rounds differently in the last bits of a float64.
        assert below - 1e-12 <= target <= cumulative[row, token].item() + 1e-12
        assert probabilities[row, token] > 0
    assert torch.isfinite(logprobs).all()


def test_tokens_without_mass_are_never_drawn() -> None:
    logits = torch.full((2, 300), float("-inf"))
    logits[:, 5] = 0.0
    ids, _ = sample_tokens(
        logits, [SamplingParams(max_tokens=1)] * 2, torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)
    )
    assert ids.tolist() == [5, 5]


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits = torch.randn(8, 500, generator=torch.Generator().manual_seed(0))
    params = [
        SamplingParams(max_tokens=1, top_k=(0, 50)[i % 2], top_p=(1.0, 0.9, 0.5)[i % 3], temperature=0.5 + i % 2)
        for i in range(8)
    ]
    uniforms = torch.linspace(0.05, 0.95, 8, dtype=torch.float64)
    ids, logprobs = sample_tokens(logits, params, uniforms)
    for i in range(8):
        one, logprob = sample_tokens(logits[i : i + 1], params[i : i + 1], uniforms[i : i + 1])
        assert (one.item(), logprob.item()) == (ids[i].item(), logprobs[i].item())
