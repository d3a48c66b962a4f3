"""Importance weights and masks: by hand, by identities, and unbiased on an enumerable toy."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.corrections import (
    Correction,
    compute_correction,
    compute_off_policy_sequence_mask,
    compute_second_moment_mask,
)

torch.set_num_threads(1)
LOG_RATIOS = st.lists(st.floats(-2, 2), min_size=6, max_size=6)
SEQUENCE = torch.tensor([0, 0, 0, 1, 1, 2])


def correct(log_ratios: list[float], **options: object) -> Correction:
    behavior = torch.full((len(log_ratios),), -3.0, dtype=torch.float64)
    old = behavior + torch.tensor(log_ratios, dtype=torch.float64)
    return compute_correction(old, behavior, SEQUENCE[: len(log_ratios)], **options)  # type: ignore[arg-type]


def test_token_weights_by_hand() -> None:
    ratios = [math.log(r) for r in (1.0, 4.0, 0.25)]
    truncated = correct(ratios, mode="truncate", level="token", high=2.0)
    assert truncated.weights.tolist() == pytest.approx([1.0, 2.0, 0.25])
    assert truncated.keep.all()
    masked = correct(ratios, mode="mask", level="token", low=0.5, high=5.0)
    assert masked.weights.tolist() == pytest.approx([1.0, 4.0, 0.0])
    assert masked.keep.tolist() == [True, True, False]
    rejected = correct(ratios, mode="reject", level="token", low=0.5, high=5.0)
    assert rejected.weights.tolist() == [1.0, 1.0, 0.0]


def test_sequence_weight_is_the_product_and_geometric_its_root() -> None:
    # Sequence 0: 2 * 4 * 1 = 8, cube root 2. Sequence 1: 0.5 * 0.5 = 0.25, root 0.5. Sequence 2: 3.
    ratios = [math.log(r) for r in (2.0, 4.0, 1.0, 0.5, 0.5, 3.0)]
    product = correct(ratios, mode="truncate", level="sequence", high=math.inf)
    assert product.weights.tolist() == pytest.approx([8.0] * 3 + [0.25] * 2 + [3.0])
    root = correct(ratios, mode="truncate", level="geometric", high=math.inf)
    assert root.weights.tolist() == pytest.approx([2.0] * 3 + [0.5] * 2 + [3.0])
    kept = correct(ratios, mode="reject", level="geometric", low=0.4, high=2.5)
    assert kept.keep.tolist() == [True] * 5 + [False]


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@given(log_ratios=LOG_RATIOS, high=st.floats(0.5, 5))
def test_bounds_and_masked_is_truncated_where_kept(level: str, log_ratios: list[float], high: float) -> None:
    truncated = correct(log_ratios, mode="truncate", level=level, high=high)
    masked = correct(log_ratios, mode="mask", level=level, high=high)
    assert (truncated.weights >= 0).all()
    assert (truncated.weights <= high).all()
    assert torch.equal(masked.weights, torch.where(masked.keep, truncated.weights, 0.0))
    if level != "token":
        for index in range(3):
            assert len(set(masked.keep[index == SEQUENCE].tolist())) == 1


def test_equal_policies_are_left_alone() -> None:
    for mode in ("truncate", "mask", "reject"):
        for level in ("token", "sequence", "geometric"):
            same = correct([0.0] * 6, mode=mode, level=level, low=0.999, high=1.001, veto=1e-4)
            assert same.weights.tolist() == [1.0] * 6
            assert same.keep.all()


def test_unbounded_token_weights_are_unbiased() -> None:
    # Expectation under the sampler of w f equals that of f under the trainer's policy, summed over three tokens.
    sampler = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    trainer = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    f = torch.tensor([1.0, -2.0, 5.0], dtype=torch.float64)
    weights = compute_correction(
        trainer.log(), sampler.log(), torch.arange(3), mode="truncate", level="token", high=math.inf
    ).weights
    assert float((sampler * weights * f).sum()) == pytest.approx(float((trainer * f).sum()))


def test_veto_drops_the_whole_sequence_at_any_level() -> None:
    ratios = [0.0, math.log(1e-5), 0.0, 0.0, math.log(0.01), 0.0]
    result = correct(ratios, mode="truncate", level="token", high=2.0, veto=1e-4)
    assert result.keep.tolist() == [False] * 3 + [True] * 3
    assert result.weights[:3].tolist() == [0.0] * 3


def test_extreme_ratios_give_finite_weights() -> None:
    result = correct([1e3, -1e3, 0.0, 1e3, 1e3, -1e3], mode="truncate", level="sequence", high=math.inf)
    assert torch.isfinite(result.weights).all()


def test_off_policy_sequences_are_dropped_only_where_bad() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0, -1.0, -1.0])
    policy = torch.tensor([-1.5, -1.3, -1.4, -1.4, -0.5])
    # Drift: (0.5 + 0.3) / 2 = 0.4, 0.4, -0.5. Bad and drifted; good and drifted; bad but moved the other way.
    advantages, sequence = torch.tensor([-1.0, -1.0, 1.0, 1.0, -1.0]), torch.tensor([0, 0, 1, 1, 2])
    mask = compute_off_policy_sequence_mask(policy, old, advantages, sequence, max_drift=0.1)
    assert mask.keep.tolist() == [False, False, True, True, True]
    assert mask.weights.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert compute_off_policy_sequence_mask(policy, old, advantages, sequence, max_drift=0.5).keep.all()


def test_second_moment_by_hand() -> None:
    # Squares 0.01, 0.04, 1: means of the sorted prefixes 0.01, 0.025, 0.35.
    old, behavior = (
        torch.tensor([-1.0, -2.1, -1.8], dtype=torch.float64),
        torch.tensor([-2.0, -2.0, -2.0], dtype=torch.float64),
    )
    assert compute_second_moment_mask(old, behavior, max_second_moment=0.03).keep.tolist() == [False, True, True]
    assert compute_second_moment_mask(old, behavior, max_second_moment=0.36).keep.all()
    assert compute_second_moment_mask(old[:0], behavior[:0], max_second_moment=0.04).keep.shape == (0,)


@given(log_ratios=LOG_RATIOS, low=st.floats(0, 1), more=st.floats(0, 1))
def test_second_moment_of_the_kept_is_bounded_and_monotone(log_ratios: list[float], low: float, more: float) -> None:
    old = torch.tensor(log_ratios, dtype=torch.float64)
    small = compute_second_moment_mask(old, torch.zeros_like(old), max_second_moment=low).keep
    large = compute_second_moment_mask(old, torch.zeros_like(old), max_second_moment=low + more).keep
    assert not (small & ~large).any()
    if small.any():
        assert float(old[small].square().mean()) <= low + 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "clip", "level": "token", "high": 2.0}, "'clip'"),
        ({"mode": "mask", "level": "turn", "high": 2.0}, "'turn'"),
        ({"mode": "mask", "level": "token", "low": 3.0, "high": 2.0}, "low <= high"),
        ({"mode": "mask", "level": "token", "high": 2.0, "veto": 0.0}, "veto is 0.0"),
    ],
)
def test_wrong_corrections_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        correct([0.0], **options)
