"""Staged rewards, BLEU, call efficiency, lengths and the gate: by hand, and the hacks they must not pay for."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_grpo_advantages
from turnwise.core.types import text_message
from turnwise.rewards.answers import AnswerCase
from turnwise.rewards.bleu import compute_length_aware_bleu
from turnwise.rewards.gates import gate_group
from turnwise.rewards.length import compute_length_rewards, compute_overlong_penalty
from turnwise.rewards.otc import compute_call_factor, compute_otc_rewards
from turnwise.rewards.selfcheck import load_reward
from turnwise.rewards.staged import compute_staged_reward

shares = st.floats(0, 1)
words = st.lists(st.sampled_from(["port", "vessa", "orin", "vale", "north"]), max_size=7).map(" ".join)


# ------------------------------------------------------------------------------------------------ staged


def staged(*scores: float) -> float:
    return compute_staged_reward(scores, weights=(0.2, 0.3, 0.5), thresholds=(0.5, 0.5, 0.5))


def test_stages_by_hand() -> None:
    # All pass: 0.2 + 0.3 * 0.5 + 0.5 * 0.4 = 0.55.
    assert staged(1.0, 0.5, 0.4) == pytest.approx(0.55)
    # The second fails: it still counts, the third does not: 0.2 + 0.3 * 0.4.
    assert staged(1.0, 0.4, 1.0) == pytest.approx(0.32)
    assert compute_staged_reward([], [], []) == 0.0


@settings(max_examples=50)
@given(st.tuples(shares, shares, shares), st.integers(0, 2), shares)
def test_doing_better_at_a_stage_never_lowers_the_reward(
    scores: tuple[float, float, float], at: int, gain: float
) -> None:
    better = tuple(min(1.0, score + gain) if i == at else score for i, score in enumerate(scores))
    assert staged(*better) >= staged(*scores) - 1e-12


def test_perfect_format_with_a_wrong_answer_is_below_any_right_answer() -> None:
    def total(format_score: float, answer: float) -> float:
        return compute_staged_reward([format_score, answer], weights=[0.2, 1.0], thresholds=[1.0, 1.0])

    assert total(1.0, 0.0) < total(1.0, 0.01)
    # Without the format the answer is not looked at.
    assert total(0.9, 1.0) < total(1.0, 0.0)


@pytest.mark.parametrize("score", [1.5, -0.1, math.nan])
def test_a_score_outside_its_range_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        staged(score, 1.0, 1.0)


# ------------------------------------------------------------------------------------------------ bleu


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("The Port Vessa.", "port vessa", 1.0),
        # One word of two: order 1, precision 1, brevity exp(1 - 2/1).
        ("vessa", "port vessa", math.exp(-1)),
        # Swapped: p1 = 1, p2 = (0 + 1) / (1 + 1).
        ("vessa port", "port vessa", math.sqrt(0.5)),
        # Two words too many: p1 = 2/4, p2 = (1 + 1) / (3 + 1).
        ("port vessa orin vale", "port vessa", 0.5),
        # Said twice is clipped: p1 = 2/4, p2 = (1 + 1) / (3 + 1).
        ("port vessa port vessa", "port vessa", 0.5),
        ("orin vale", "port vessa", 0.0),
        ("", "port vessa", 0.0),
        ("the", "a", 0.0),
        ("The", "the", 1.0),
    ],
)
def test_length_aware_bleu_by_hand(prediction: str, gold: str, expected: float) -> None:
    assert compute_length_aware_bleu(prediction, [gold]) == pytest.approx(expected)


def test_bleu_takes_the_best_gold_answer() -> None:
    assert compute_length_aware_bleu("port vessa", ["orin vale", "port vessa"]) == 1.0
    assert compute_length_aware_bleu("port vessa", []) == 0.0


@settings(max_examples=50)
@given(words, words)
def test_bleu_is_a_share_and_one_for_equal_answers(prediction: str, gold: str) -> None:
    assert 0.0 <= compute_length_aware_bleu(prediction, [gold]) <= 1.0
    assert compute_length_aware_bleu(gold, [gold]) == pytest.approx(1.0)
    if gold and prediction:
        # Padding a right answer pays less, however short it is.
        assert compute_length_aware_bleu(f"{gold} {prediction}", [gold]) < 1.0


def test_bleu_is_a_reward_by_name_and_passes_its_own_cases() -> None:
    reply = text_message("assistant", "<answer> Vessa </answer>")
    case = AnswerCase(replies=[reply], golds=["Port Vessa"])
    assert load_reward("bleu").compute(case) == pytest.approx(math.exp(-1))


# ------------------------------------------------------------------------------------------------ call efficiency


def test_call_factors_by_hand() -> None:
    # Fewest 0: cos(0) = 1; cos(pi / 3) = 1/2 at one call; cos(2 pi / 5) at two.
    assert [compute_call_factor(m, 0) for m in (0, 1, 2)] == pytest.approx([1.0, 0.5, math.cos(2 * math.pi / 5)])
    # Fewest 1: 0 at none, sin(pi / 2) = 1 at one call, sin(2 pi / 3) at two, sin(3 pi / 4) at three.
    factors = [compute_call_factor(m, 1) for m in (0, 1, 2, 3)]
    assert factors == pytest.approx([0.0, 1.0, math.sqrt(3) / 2, math.sqrt(0.5)])


@given(st.integers(0, 50), st.integers(0, 20))
def test_more_calls_than_needed_always_pay_less(extra: int, fewest: int) -> None:
    fewer, more = (compute_call_factor(fewest + extra + k, fewest) for k in (0, 1))
    assert 0.0 <= more < fewer


def test_otc_rewards_by_hand() -> None:
    # Correct with 2 and 1 calls, wrong with none: fewest 1. 1 * sqrt(3)/2, 1 * 1, 0.
    assert compute_otc_rewards([1, 1, 0], [2, 1, 0], [True, True, False]) == pytest.approx([math.sqrt(3) / 2, 1.0, 0.0])
    assert compute_otc_rewards([0, 0.2], [3, 0], [False, False]) == [0, 0.2]
    assert compute_otc_rewards([], [], []) == []
    with pytest.raises(ValueError, match="-1"):
        compute_otc_rewards([-1], [0], [False])


# ------------------------------------------------------------------------------------------------ length


def test_overlong_by_hand() -> None:
    # Limit 100, buffer 20: free to 80, half way at 90, -1 at 100 and for ever after.
    got = [compute_overlong_penalty(n, max_tokens=100, buffer=20) for n in (0, 80, 85, 90, 100, 101, 10**6)]
    assert got == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0, -1.0]
    with pytest.raises(ValueError, match="buffer"):
        compute_overlong_penalty(1, max_tokens=10, buffer=0)


@given(st.integers(0, 500), st.integers(1, 200), st.integers(0, 200))
def test_overlong_is_bounded_monotone_and_without_jumps(num_tokens: int, buffer: int, room: int) -> None:
    here, after = (
        compute_overlong_penalty(n, max_tokens=buffer + room, buffer=buffer) for n in (num_tokens, num_tokens + 1)
    )
    assert -1.0 <= after <= here <= 0.0
    assert here - after <= 1 / buffer + 1e-12


def test_length_rewards_by_hand() -> None:
    # Lengths 10 20 30 20: shares 0.5 0 -0.5 0; the wrong short one gets 0, not 0.5.
    assert compute_length_rewards([10, 20, 30, 20], [True, True, True, True]) == [0.5, 0.0, -0.5, 0.0]
    assert compute_length_rewards([10, 30], [False, False]) == [0.0, -0.5]
    assert compute_length_rewards([10, 10], [True, False]) == compute_length_rewards([7, 7], [True, True]) == [0.0, 0.0]
    assert compute_length_rewards([], []) == []
    with pytest.raises(ValueError, match="verdicts"):
        compute_length_rewards([1], [])


# ------------------------------------------------------------------------------------------------ gate


@settings(max_examples=50)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_an_all_wrong_group_has_no_signal_whatever_the_shaping(rewards: list[float]) -> None:
    assert compute_grpo_advantages(gate_group(rewards, [0.0] * len(rewards))) == [0.0] * len(rewards)


def test_a_group_with_a_success_keeps_its_shaping() -> None:
    assert gate_group([0.9, 0.1], [1.0, 0.0]) == [0.9, 0.1]
    assert gate_group([0.9, 0.1], [0.5, 0.0]) == [0.0, 0.0]
    assert gate_group([], []) == []
    with pytest.raises(ValueError, match="metrics"):
        gate_group([0.9], [])
