"""Staged rewards, call efficiency, length penalties and gates: by hand, and the hacks they must not pay for."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_grpo_advantages
from turnwise.core.errors import RewardError
from turnwise.rewards.gates import gate_by_format, gate_group
from turnwise.rewards.length import compute_hard_length_penalty, compute_overlong_penalty, compute_soft_length_penalties
from turnwise.rewards.otc import (
    compute_call_factor,
    compute_group_call_factor,
    compute_otc_rewards,
    compute_tool_productivity,
    find_minimal_calls,
)
from turnwise.rewards.staged import RewardStage, compute_length_aware_bleu, compute_staged_reward, score_answer

shares = st.floats(0, 1)
words = st.lists(st.sampled_from(["port", "vessa", "orin", "vale", "north"]), max_size=7).map(" ".join)


# ------------------------------------------------------------------------------------------------ staged


def stages(*scores: float, weights: tuple[float, ...] = (0.2, 0.3, 0.5)) -> list[RewardStage]:
    def fixed(score: float) -> RewardStage:
        return RewardStage(name="fixed", score=lambda: score)

    return [
        RewardStage(name=name, score=fixed(score).score, weight=weight, threshold=0.5)
        for name, score, weight in zip(("format", "facts", "quality"), scores, weights, strict=True)
    ]


def test_stages_by_hand() -> None:
    # All pass: 0.2 + 0.3 * 0.5 + 0.5 * 0.4 = 0.55.
    scored = compute_staged_reward(stages(1.0, 0.5, 0.4))
    assert scored.total == pytest.approx(0.55)
    # The second fails: it still counts, the third does not.
    scored = compute_staged_reward(stages(1.0, 0.4, 1.0))
    assert scored.total == pytest.approx(0.2 + 0.3 * 0.4)
    assert [part.value for part in scored.parts] == [1.0, 0.4, 0.0]


def test_a_later_stage_is_not_even_asked() -> None:
    def judge() -> float:
        raise AssertionError("asked")

    failed = RewardStage(name="format", score=lambda: 0.0)
    assert compute_staged_reward([failed, RewardStage(name="judge", score=judge)]).total == 0.0


@settings(max_examples=50)
@given(st.tuples(shares, shares, shares), st.integers(0, 2), shares)
def test_doing_better_at_a_stage_never_lowers_the_reward(
    scores: tuple[float, float, float], at: int, gain: float
) -> None:
    better = tuple(min(1.0, score + gain) if i == at else score for i, score in enumerate(scores))
    assert compute_staged_reward(stages(*better)).total >= compute_staged_reward(stages(*scores)).total - 1e-12


def test_perfect_format_with_a_wrong_answer_is_below_any_right_answer() -> None:
    def total(format_score: float, answer: float) -> float:
        parts = (
            RewardStage(name="format", score=lambda: format_score, weight=0.2),
            RewardStage(name="answer", score=lambda: answer),
        )
        return compute_staged_reward(parts).total

    assert total(1.0, 0.0) < total(1.0, 0.01)
    # Without the format the answer is not looked at.
    assert total(0.9, 1.0) < total(1.0, 0.0)


@pytest.mark.parametrize("score", [1.5, -0.1, math.nan])
def test_a_score_outside_its_range_is_named(score: float) -> None:
    with pytest.raises(RewardError, match="'format'"):
        compute_staged_reward(stages(score, 1.0, 1.0))


def test_bad_stages_raise() -> None:
    with pytest.raises(ValueError, match="at least one"):
        compute_staged_reward([])
    with pytest.raises(ValueError, match="weight -1"):
        compute_staged_reward([RewardStage(name="a", score=lambda: 1.0, weight=-1)])
    with pytest.raises(RewardError, match="KeyError"):
        compute_staged_reward([RewardStage(name="a", score=lambda: dict[str, float]()["x"])])


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


def test_long_answers_go_to_the_judge() -> None:
    long = "port vessa lies north of orin vale"
    assert score_answer("x", [long], judge=lambda prediction, golds: 0.25, max_short_words=3) == 0.25
    assert score_answer(long, [long], judge=None, max_short_words=7) == pytest.approx(1.0)
    with pytest.raises(RewardError, match="no judge"):
        score_answer("x", [long], judge=None, max_short_words=3)
    with pytest.raises(RewardError, match="'judge' is 7"):
        score_answer("x", [long], judge=lambda prediction, golds: 7.0, max_short_words=3)
    with pytest.raises(ValueError, match="no gold answers"):
        score_answer("x", [], judge=None)


# ------------------------------------------------------------------------------------------------ call efficiency


def test_call_factors_by_hand() -> None:
    # cos(0) = 1; cos(pi / 3) = 1/2 at one call with smoothing 1; cos(2 pi / 5) at two.
    assert [compute_call_factor(m) for m in (0, 1, 2)] == pytest.approx([1.0, 0.5, math.cos(2 * math.pi / 5)])
    # Minimum 1: sin(pi / 2) = 1 at one call, sin(2 pi / 3) at two, sin(3 pi / 4) at three, 0 at none.
    factors = [compute_group_call_factor(m, 1) for m in (0, 1, 2, 3)]
    assert factors == pytest.approx([0.0, 1.0, math.sqrt(3) / 2, math.sqrt(0.5)])
    assert compute_group_call_factor(1, 0) == compute_call_factor(1)


@given(st.integers(0, 50), st.integers(0, 20), st.floats(0.1, 10))
def test_more_calls_than_needed_always_pay_less(extra: int, minimal: int, smoothing: float) -> None:
    fewer, more = (compute_group_call_factor(minimal + extra + k, minimal, smoothing=smoothing) for k in (0, 1))
    assert 0.0 <= more < fewer


def test_otc_rewards_by_hand() -> None:
    # Correct with 2 and 1 calls, wrong with none: minimum 1. 1 * sqrt(3)/2, 1 * 1, 0.
    assert compute_otc_rewards([1, 1, 0], [2, 1, 0], [True, True, False]) == pytest.approx([math.sqrt(3) / 2, 1.0, 0.0])
    assert compute_otc_rewards([0, 0.2], [3, 0], [False, False]) == [0, 0.2]
    assert compute_otc_rewards([], [], []) == []
    with pytest.raises(ValueError, match="-1"):
        compute_otc_rewards([-1], [0], [False])
    with pytest.raises(ValueError, match="smoothing"):
        compute_call_factor(1, smoothing=0.0)


def test_minimum_and_productivity() -> None:
    assert find_minimal_calls([3, 1, 2], [True, False, True]) == 2
    assert find_minimal_calls([3], [False]) is None
    assert compute_tool_productivity([3, 1, 0], [True, False, True]) == 0.5
    assert math.isnan(compute_tool_productivity([0], [True]))


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


def test_hard_and_soft_penalties_by_hand() -> None:
    assert [compute_hard_length_penalty(n, max_tokens=10, penalty=0.5) for n in (10, 11)] == [0.0, -0.5]
    # Lengths 10 20 30 20: shares 0.5 0 -0.5 0; the wrong short one gets 0, not 0.5.
    assert compute_soft_length_penalties([10, 20, 30, 20], [True, True, True, True]) == [0.5, 0.0, -0.5, 0.0]
    assert compute_soft_length_penalties([10, 30], [False, False]) == [0.0, -0.5]
    assert (
        compute_soft_length_penalties([10, 10], [True, False])
        == compute_soft_length_penalties([7, 7], [True, True])
        == [0.0, 0.0]
    )
    assert compute_soft_length_penalties([], []) == []
    with pytest.raises(ValueError, match="verdicts"):
        compute_soft_length_penalties([1], [])


# ------------------------------------------------------------------------------------------------ gates


@settings(max_examples=50)
@given(st.lists(st.none() | st.floats(-1, 1), min_size=1, max_size=8))
def test_an_all_wrong_group_has_no_signal_whatever_the_shaping(rewards: list[float | None]) -> None:
    advantages = compute_grpo_advantages(gate_group(rewards, [None if r is None else 0.0 for r in rewards]))
    assert advantages == [None if r is None else 0.0 for r in rewards]


def test_a_group_with_a_success_keeps_its_shaping() -> None:
    assert gate_group([0.9, 0.1, None], [1.0, 0.0, None]) == [0.9, 0.1, None]
    assert gate_group([0.9, 0.1, None], [0.5, 0.0, None], floor=-1.0) == [-1.0, -1.0, None]
    assert gate_group([0.9], [0.5], success=0.5) == [0.9]
    assert gate_group([], []) == []
    with pytest.raises(ValueError, match="NaN"):
        gate_group([0.9], [math.nan])
    with pytest.raises(ValueError, match="metrics"):
        gate_group([0.9], [])


def test_format_gate_caps_and_never_raises_a_reward() -> None:
    assert gate_by_format(0.8, well_formed=True) == 0.8
    assert gate_by_format(0.8, well_formed=False) == 0.0
    assert gate_by_format(-0.5, well_formed=False) == -0.5
