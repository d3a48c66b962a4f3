"""Turn-level credit against hand-computed numbers, and the identities each method promises."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_grpo_advantages
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.turns.discount import compute_discounted_advantages
from turnwise.algorithms.turns.groups import compute_returns
from turnwise.algorithms.turns.igpo import build_igpo, compute_igpo_advantages, compute_information_gains
from turnwise.algorithms.turns.multi_turn_grpo import build_multi_turn_grpo, compute_multi_turn_advantages
from turnwise.algorithms.turns.potential import build_potential, compute_shaping
from turnwise.algorithms.turns.process_scores import compute_process_advantages
from turnwise.algorithms.turns.spa import build_spa, compute_progress_rewards
from turnwise.algorithms.turns.vine import build_vine, compute_vine_advantages

numbers = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 2))
rows = st.lists(numbers, min_size=1, max_size=6)


def test_multi_turn_grpo_by_hand() -> None:
    # Centring only. Outcomes 1 0 0: mean 1/3 gives 2/3 -1/3 -1/3.
    # Turn 0 rewards 1 0 2: mean 1 gives 0 -1 1. Turn 1 exists in members 0 and 1 only: 4 0, mean 2 gives 2 -2.
    # gamma 1/2: member 0 turn 0: 2/3 + 0 + 2/2 = 5/3, turn 1: 2/3 + 2 = 8/3.
    # member 1 turn 0: -1/3 - 1 - 2/2 = -7/3, turn 1: -1/3 - 2 = -7/3. member 2: -1/3 + 1 = 2/3.
    got = compute_multi_turn_advantages([1, 0, 0], [[1, 4], [0, 0], [2]], gamma=0.5, deviation="none")
    assert got == [pytest.approx([5 / 3, 8 / 3]), pytest.approx([-7 / 3, -7 / 3]), pytest.approx([2 / 3])]


def test_two_turn_form_of_the_paper() -> None:
    # Only the first turn is rewarded (did the tool run): before the result A_out + lambda A_turn, after it A_out.
    # Sample deviation without epsilon of 1 0 is sqrt(1/2): +-(1/2) / sqrt(1/2) = +-sqrt(1/2). Turn rewards 0 1 give the
    # opposite sign.
    half = math.sqrt(0.5)
    got = compute_multi_turn_advantages([1, 0], [[0, 0], [1, 0]], coefficient=0.5, epsilon=0.0)
    assert got == [pytest.approx([half - 0.5 * half, half]), pytest.approx([-half + 0.5 * half, -half])]


def test_a_turn_that_only_one_member_reached_adds_nothing() -> None:
    got = compute_multi_turn_advantages([1, 0], [[0, 7], [0]], deviation="none")
    assert got == [[0.5, 0.5], [-0.5]]


def test_discount_by_hand() -> None:
    # Outcomes 1 0 centred: +-1/2. gamma 1/2, three turns: 1/8 1/4 1/2. The loser has one turn: -1/2.
    assert compute_discounted_advantages([1, 0], [[0, 0, 0], [0]], gamma=0.5, deviation="none") == [
        [0.125, 0.25, 0.5],
        [-0.5],
    ]


def test_equal_outcomes_at_unequal_lengths_give_no_signal_under_discount() -> None:
    assert compute_discounted_advantages([0.7, 0.7], [[0, 0, 0], [0]], gamma=0.5) == [[0.0, 0.0, 0.0], [0.0]]


def test_vine_by_hand() -> None:
    # Values before the turns 0.5 0.75 0.25, outcome 1 at the end: 0.25, -0.5, 1 - 0.25 = 0.75; sum 1 - 0.5.
    assert compute_vine_advantages([0, 0, 1], [0.5, 0.75, 0.25]) == [0.25, -0.5, 0.75]
    # The middle one missing takes r + V(next) = 0.25: its turn gets 0, the first 0.25 - 0.5.
    assert compute_vine_advantages([0, 0, 1], [0.5, None, 0.25]) == [-0.25, 0.0, 0.75]


@given(rows, st.data())
def test_vine_telescopes(rewards: list[float], data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | numbers, min_size=len(rewards), max_size=len(rewards)))
    first = next((sum(rewards[:k]) + v for k, v in enumerate(values) if v is not None), sum(rewards))
    # V(s_0) is the first known value plus what was earned before it, or the whole return when none is known.
    assert sum(compute_vine_advantages(rewards, values)) == pytest.approx(sum(rewards) - first, abs=1e-9)


def test_vine_refuses_a_value_too_few_and_nan() -> None:
    with pytest.raises(ValueError, match="2 turn rewards but 1 state values"):
        compute_vine_advantages([0, 1], [0.5])
    with pytest.raises(ValueError, match="state value 0 is nan"):
        compute_vine_advantages([1], [math.nan])


def test_information_gains_by_hand() -> None:
    # Before anything 0.1; after turns 0.3 0.2 and (not read) 0.9: gains 0.2 -0.1, then the outcome.
    assert compute_information_gains([0.3, 0.2, 0.9], 1.0, prior=0.1) == pytest.approx([0.2, -0.1, 1.0])
    assert compute_information_gains([0.9], 0.5) == [0.5]
    assert compute_information_gains([], 0.5) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1))
def test_information_gains_telescope(probabilities: list[float], prior: float) -> None:
    *gains, outcome = compute_information_gains(probabilities, 3.0, prior=prior)
    assert outcome == 3.0
    assert sum(gains) == pytest.approx([prior, *probabilities][-2] - prior, abs=1e-12)


def test_igpo_pools_gains_and_outcomes() -> None:
    # Pool 1 0 | 3 0: mean 1. Centred 0 -1 | 2 -1. Sums from each turn on: -1 -1 | 1 -1.
    assert compute_igpo_advantages([[1, 0], [3, 0]], deviation="none") == [[-1.0, -1.0], [1.0, -1.0]]


def test_igpo_reads_the_prior_of_the_trajectory() -> None:
    def member(prior: float) -> CreditTrajectory:
        turns = (CreditTurn(num_tokens=1, answer_probability=0.5), CreditTurn(num_tokens=1, answer_probability=0.5))
        return CreditTrajectory(group="a", reward=0.0, turns=turns, answer_prior=prior)

    # Gains 0.5 - 0.1 = 0.4 and 0.5 - 0.5 = 0; outcomes 0. Pool 0.4 0 0 0: mean 0.1. First: 0.3 then -0.1, from turn 0
    # on 0.2.
    got = build_igpo(deviation="none")([member(0.1), member(0.5)])
    assert [[float(a[0]) for a in turns or []] for turns in got] == [
        pytest.approx([0.2, -0.1]),
        pytest.approx([-0.2, -0.1]),
    ]


def test_probability_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.5"):
        compute_information_gains([1.5, 0.5], 1.0)


def test_process_scores_by_hand() -> None:
    # Scores 1 3 | 0 0: mean 1; squares 0 4 1 1 = 6, n-1 variance 2. Centred 0 2 | -1 -1, over sqrt(2), summed from each
    # turn on: 2 2 | -2 -1, over sqrt(2).
    root = math.sqrt(2)
    got = compute_process_advantages([1, 0], [[1, 3], [0, 0]], epsilon=0.0)
    assert got == [pytest.approx([2 / root, 2 / root]), pytest.approx([-2 / root, -1 / root])]
    # With outcomes at coefficient 1: +-(1/2) / sqrt(1/2) = +-1/sqrt(2) on every turn.
    both = compute_process_advantages([1, 0], [[1, 3], [0, 0]], outcome_coefficient=1.0, epsilon=0.0)
    assert both == [pytest.approx([3 / root, 3 / root]), pytest.approx([-3 / root, -2 / root])]


@given(rows, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_shaping_adds_minus_the_first_potential_whatever_happens(potentials: list[float], gamma: float) -> None:
    shaping = compute_shaping(potentials, gamma=gamma)
    assert sum(gamma**k * f for k, f in enumerate(shaping)) == pytest.approx(-potentials[0], abs=1e-9)


def test_potential_by_hand() -> None:
    # Potentials 0 1 and 0 0, gamma 1, outcomes 1 1. Shaping 1 -1 and 0 0; centred per index: 1/2 -1/2 and -1/2 1/2.
    # From turn 0 on the shaping cancels: 0 and 0; turn 1: -1/2 and 1/2 (from a better state the same outcome is worth
    # less).
    def member(*potentials: float) -> CreditTrajectory:
        return CreditTrajectory(
            group="a", reward=1.0, turns=tuple(CreditTurn(num_tokens=1, potential=p) for p in potentials)
        )

    got = build_potential()([member(0, 1), member(0, 0)])
    assert [[float(a[0]) for a in turns or []] for turns in got] == [[0.0, -0.5], [0.0, 0.5]]


@given(rows, numbers)
def test_conserved_progress_sums_to_the_outcome(progress: list[float], outcome: float) -> None:
    rewards = compute_progress_rewards(progress, [0.0] * len(progress), outcome, conserve=True)
    assert sum(rewards) == pytest.approx(outcome, abs=1e-9)


def test_spa_by_hand() -> None:
    # alpha 2, beta 1: contributions 0.5 0 and 0 0 with grounding 0 1 and 0 1: rewards 1 1 and 0 1.
    # Centred per index: 1/2 0 and -1/2 0; summed from each turn on: 1/2 0 and -1/2 0. Outcomes are not read.
    def member(reward: float, first: float) -> CreditTrajectory:
        turns = (CreditTurn(num_tokens=1, progress=first), CreditTurn(num_tokens=1, progress=0.0, reward=1.0))
        return CreditTrajectory(group="a", reward=reward, turns=turns)

    got = build_spa(alpha=2.0, deviation="none")([member(0.0, 0.5), member(9.0, 0.0)])
    assert [[float(a[0]) for a in turns or []] for turns in got] == [[0.5, 0.0], [-0.5, 0.0]]


def test_a_missing_field_is_named() -> None:
    turns = (CreditTurn(num_tokens=1, progress=0.5), CreditTurn(num_tokens=1))
    with pytest.raises(ValueError, match="turn 1 has no progress"):
        build_spa()([CreditTrajectory(group="a", reward=0.0, turns=turns)])


@settings(max_examples=50)
@given(st.lists(numbers, min_size=2, max_size=8))
def test_one_turn_is_grpo(outcomes: list[float]) -> None:
    expected = [pytest.approx([value]) for value in compute_grpo_advantages(outcomes)]
    alone = [[0.0] for _ in outcomes]
    assert compute_multi_turn_advantages(outcomes, alone, epsilon=1e-6) == expected
    assert compute_discounted_advantages(outcomes, alone) == expected
    assert compute_igpo_advantages([[o] for o in outcomes]) == expected
    assert compute_process_advantages([0.0] * len(outcomes), [[o] for o in outcomes]) == expected


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1 / 3])
@pytest.mark.parametrize("size", [1, 3, 7, 16])
def test_constant_groups_are_exactly_zero(value: float, size: int) -> None:
    constant = [[value, value]] * size
    zero = [[0.0, 0.0]] * size
    assert compute_multi_turn_advantages([value] * size, constant) == zero
    assert compute_discounted_advantages([value] * size, constant) == zero
    assert compute_igpo_advantages(constant) == zero
    assert compute_process_advantages([value] * size, constant, outcome_coefficient=1.0) == zero


@given(rows, st.floats(0, 1))
def test_returns_are_what_the_sum_says(rewards: list[float], gamma: float) -> None:
    expected = [sum(gamma ** (j - k) * rewards[j] for j in range(k, len(rewards))) for k in range(len(rewards))]
    assert compute_returns(rewards, gamma) == pytest.approx(expected, abs=1e-9)


def test_discount_outside_its_range_is_refused_when_built() -> None:
    with pytest.raises(ValueError, match="gamma"):
        build_multi_turn_grpo(gamma=1.5)


def test_every_token_of_a_turn_gets_the_same_number_and_no_other_turn_does() -> None:
    turns = (CreditTurn(num_tokens=3, reward=1.0), CreditTurn(num_tokens=0), CreditTurn(num_tokens=2))
    other = (CreditTurn(num_tokens=1),)
    batch = [CreditTrajectory(group="a", reward=1.0, turns=turns), CreditTrajectory(group="a", reward=0.0, turns=other)]
    first, second = build_multi_turn_grpo(deviation="none")(batch)
    # Outcome +-1/2; turn 0 rewards 1 0: +-1/2.
    assert first is not None
    assert second is not None
    assert [a.tolist() for a in first] == [[1.0, 1.0, 1.0], [], [0.5, 0.5]]
    assert [a.tolist() for a in second] == [[-1.0]]
    assert all(a.dtype == np.float64 for a in first)


def test_vine_credits_the_outcome_on_the_last_turn() -> None:
    turns = (CreditTurn(num_tokens=1, state_value=0.25, reward=0.5), CreditTurn(num_tokens=1, state_value=0.75))
    # Turn 0: 0.5 + 0.75 - 0.25 = 1; turn 1: outcome 1 - 0.75 = 0.25.
    (got,) = build_vine()([CreditTrajectory(group="a", reward=1.0, turns=turns)])
    assert got is not None
    assert [float(a[0]) for a in got] == [1.0, 0.25]
