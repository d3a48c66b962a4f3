"""The optimal token baseline, by hand and by what must not matter."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.advantages.otb import build_otb, compute_otb_advantages, compute_path_energy
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn

VALUES = st.floats(-5, 5)


def test_energy_by_hand() -> None:
    # Two equally likely tokens: 1 - 2 / 2 + (1/4 + 1/4) = 0.5, the squared length of (1 - 1/2, -1/2). A certain token
    # adds 0.
    energy = compute_path_energy(np.log([0.5, 0.5, 1.0]), np.array([0.5, 0.5, 1.0]))
    assert energy.tolist() == pytest.approx([0.5, 1.0, 1.0])


def test_advantages_by_hand() -> None:
    # Position 0: W 1 and 3, G 1 and 0: B = 1/4. Position 1: W 1 and 4: B = 1/5. Position 2 belongs to the second alone:
    # B = 0.
    returns = [np.array([1.0, 1.0]), np.array([0.0, 0.0, 0.5])]
    advantages = compute_otb_advantages(returns, [np.array([1.0, 1.0]), np.array([3.0, 4.0, 5.0])])
    assert advantages[0].tolist() == pytest.approx([0.75, 0.8])
    assert advantages[1].tolist() == pytest.approx([-0.25, -0.2, 0.5])


def test_without_any_energy_it_is_the_mean() -> None:
    advantages = compute_otb_advantages([np.array([1.0]), np.array([0.0])], [np.zeros(1), np.zeros(1)])
    assert [row.tolist() for row in advantages] == [[0.5], [-0.5]]


def test_turns_join_and_unscored_members_stay_out() -> None:
    def turn(num_tokens: int, reward: float = 0.0) -> CreditTurn:
        half = np.full(num_tokens, 0.5)
        return CreditTurn(num_tokens=num_tokens, reward=reward, logprobs=np.log(half), squared_mass=half)

    # Energies 0.5, 1.0, 1.5 in both. Returns 1.5 1 1 against 0 0: the turn reward of 0.5 lies on the first token.
    first = CreditTrajectory(group="g", reward=1.0, turns=(turn(1, 0.5), turn(2)))
    second = CreditTrajectory(group="g", reward=0.0, turns=(turn(2),))
    lost = CreditTrajectory(group="g", reward=None, turns=(turn(1),))
    one, two, none = build_otb()([first, second, lost])
    assert none is None
    assert one is not None
    assert two is not None
    assert [array.tolist() for array in one] == [[0.75], [0.5, 1.0]]
    assert [array.tolist() for array in two] == [[-0.75, -0.5]]


def test_lengths_must_fit() -> None:
    with pytest.raises(ValueError, match=r"returns have \[1\] tokens, energies \[2\]"):
        compute_otb_advantages([np.zeros(1)], [np.zeros(2)])
    with pytest.raises(ValueError, match="pass one value per sampled token"):
        compute_path_energy(np.zeros(1), np.zeros(2))


@given(value=VALUES, lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_constant_group_gives_exactly_0_where_two_or_more_are_left(
    value: float, lengths: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    advantages = compute_otb_advantages(
        [np.full(n, value) for n in lengths], [np.cumsum(rng.random(n)) for n in lengths]
    )
    shared = sorted(lengths)[-2] if len(lengths) > 1 else max(lengths)
    assert all((row[:shared] == 0).all() for row in advantages)


@given(returns=st.lists(VALUES, min_size=2, max_size=5), seed=st.integers(0, 99), scale=st.floats(0.1, 10))
def test_weighted_advantages_sum_to_0_and_the_scale_of_the_energy_does_not_matter(
    returns: list[float], seed: int, scale: float
) -> None:
    energies = [np.array([w]) for w in np.random.default_rng(seed).uniform(0.1, 2, len(returns))]
    advantages = compute_otb_advantages([np.array([g]) for g in returns], energies)
    if max(returns) - min(returns) > 1e-3:
        assert math.fsum(float(w[0] * a[0]) for w, a in zip(energies, advantages, strict=True)) == pytest.approx(
            0.0, abs=1e-9
        )
    scaled = compute_otb_advantages([np.array([g]) for g in returns], [scale * w for w in energies])
    assert [float(a[0]) for a in scaled] == pytest.approx([float(a[0]) for a in advantages], abs=1e-9)
