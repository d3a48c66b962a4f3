"""The critic's clipped loss: hand table, and what clipping does to value and gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.value_loss import compute_value_loss

small = st.lists(st.floats(-5, 5), min_size=3, max_size=3)


def test_value_loss_by_hand() -> None:
    # V_old 0, R 1, clip 0.2. V 0.1: inside, (0.9)^2 / 2 = 0.405. V 0.9: clipped to 0.2, (0.8)^2 / 2 = 0.32 > (0.1)^2 /
    # 2. V -1: clipped to -0.2, (1.2)^2 / 2 = 0.72 < (2)^2 / 2 = 2, the larger counts.
    values = torch.tensor([0.1, 0.9, -1.0], dtype=torch.float64, requires_grad=True)
    losses, clipped = compute_value_loss(
        values, torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64), clip=0.2
    )
    assert losses.tolist() == pytest.approx([0.405, 0.32, 2.0])
    assert clipped.tolist() == [False, True, False]
    losses.sum().backward()
    # Gradient V - R where not clipped, exactly 0 where clipped.
    assert values.grad is not None
    assert values.grad.tolist() == pytest.approx([-0.9, 0.0, -2.0])
    assert values.grad[1] == 0


@settings(max_examples=50)
@given(small, small, small, st.floats(0, 2))
def test_clipping_never_lowers_the_loss(
    values: list[float], old: list[float], returns: list[float], clip: float
) -> None:
    v, o, r = (torch.tensor(x, dtype=torch.float64) for x in (values, old, returns))
    losses, _ = compute_value_loss(v, o, r, clip=clip)
    plain, never = compute_value_loss(v, o, r, clip=None)
    assert torch.allclose(plain, 0.5 * (v - r) ** 2)
    assert not never.any()
    assert (losses >= plain).all()
    inside = (v - o).abs() <= clip
    assert torch.allclose(losses[inside], plain[inside])


def test_shapes_and_clip_are_checked() -> None:
    with pytest.raises(ValueError, match="the same shape"):
        compute_value_loss(torch.zeros(2), torch.zeros(1), torch.zeros(2))
    with pytest.raises(ValueError, match="clip"):
        compute_value_loss(torch.zeros(2), torch.zeros(2), torch.zeros(2), clip=-0.1)
    losses, clipped = compute_value_loss(torch.zeros(0), torch.zeros(0), torch.zeros(0))
    assert losses.shape == clipped.shape == (0,)
