"""Stated confidences: what is read, what it scores, and what the scores decompose into."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.advantages.grpo import compute_grpo_advantages
from turnwise_rewards.shaping.confidence import Outcome, compute_score, read_confidence
from turnwise_rewards.shaping.decomposition import compute_risk_area, decompose, trace_coverage


@pytest.mark.parametrize(
    ("reply", "outcome", "value"),
    [
        ("<confidence> 0.7 </confidence> <answer> red </answer>", "stated", 0.7),
        ("<answer> red </answer>\n<confidence>\n1\n</confidence>", "stated", 1.0),
        ("<answer> red <confidence>.25</confidence></answer>", "stated", 0.25),
        ("<confidence> source b: 0.6 </confidence>", "stated", 0.6),
        ("<answer> red </answer>", "missing", None),
        ("<confidence> 0.7", "missing", None),
        ("<think> <confidence>0.7</confidence> </think> red", "missing", None),
        ("<confidence>0.9</confidence><confidence>0.1</confidence>", "several", None),
        ("<confidence> 0.9 <confidence> 0.1 </confidence>", "several", None),
        ("<confidence> 9 </confidence> 7 </confidence>", "several", None),
        ("<confidence>7</confidence>", "outside", None),
        ("<confidence>1.01</confidence>", "outside", None),
        ("<confidence></confidence>", "no_number", None),
        *(
            (f"<confidence>{text}</confidence>", "no_number", None)
            for text in (
                "90%",
                "7/10",
                "high",
                "0,5",
                "nan",
                "inf",
                "1e-1",
                "-0.2",
                "0_1",
                "٠.٥",
                "0.7 or 0.2",
                "+0.5",
                "0.",
                "about 90%",
                "0.7 sure",
                "v2 0.5",
            )
        ),
    ],
)
def test_a_confidence_is_a_plain_decimal_in_one_tag_or_a_named_outcome(reply, outcome, value) -> None:
    stated = read_confidence(reply)
    assert (stated.outcome, stated.value) == (outcome, value)


def test_a_scale_divides_the_number() -> None:
    assert read_confidence("<confidence> source b 6 </confidence>", scale=10).value == 0.6
    assert read_confidence("<confidence> 10 </confidence>", scale=10).value == 1
    assert read_confidence("<confidence> 11 </confidence>", scale=10).outcome is Outcome.OUTSIDE


@given(st.text() | st.text(alphabet="<>/confidence 0.1"))
def test_any_reply_has_an_outcome_and_only_a_stated_one_a_value(reply) -> None:
    stated = read_confidence(f"<confidence>{reply}</confidence>")
    assert (stated.value is not None) == (stated.outcome is Outcome.STATED)
    assert stated.value is None or 0 <= stated.value <= 1


def test_scores_by_hand() -> None:
    assert compute_score("brier", 0.7, True) == pytest.approx(0.91)  # 1 - 0.3^2
    assert compute_score("brier", 0.7, False) == pytest.approx(0.51)  # 1 - 0.7^2
    assert compute_score("linear", 0.7, False) == pytest.approx(0.3)
    assert compute_score("log", 0.1, True) == pytest.approx(0.5)  # 1 - ln 0.1 / ln 0.01 = 1 - 1/2
    assert compute_score("log", 0.0, True) == 0.0  # at the floor, not minus infinity
    assert compute_score("log", 1.0, True) == 1.0
    assert compute_score("abstain", 0.75, False, threshold=0.75) == 0.0  # not surer than the threshold: no answer
    assert compute_score("abstain", 0.8, False, threshold=0.75) == pytest.approx(-3.0)  # - 0.75 / 0.25
    assert compute_score("abstain", 0.8, True, threshold=0.75) == 1.0


GRID = [step / 100 for step in range(101)]


@pytest.mark.parametrize("rule", ["brier", "log"])
@pytest.mark.parametrize("chance", [0.05, 0.3, 0.5, 0.61, 0.9])
def test_under_a_proper_rule_nothing_pays_more_than_the_truth(rule, chance) -> None:
    expected = {c: chance * compute_score(rule, c, True) + (1 - chance) * compute_score(rule, c, False) for c in GRID}
    assert max(expected, key=expected.__getitem__) == chance


@pytest.mark.parametrize(("chance", "best"), [(0.6, 1.0), (0.4, 0.0)])
def test_under_the_linear_rule_certainty_pays_most(chance, best) -> None:
    expected = {c: chance * c + (1 - chance) * (1 - c) for c in GRID}
    assert {
        c: chance * compute_score("linear", c, True) + (1 - chance) * compute_score("linear", c, False) for c in GRID
    } == pytest.approx(expected)
    assert max(expected, key=expected.__getitem__) == best


@given(chance=st.floats(0.01, 0.99), threshold=st.floats(0.01, 0.95))
def test_answering_pays_exactly_above_the_threshold(chance, threshold) -> None:
    answers = [compute_score("abstain", 1.0, right, threshold=threshold) for right in (True, False)]
    expected = chance * answers[0] + (1 - chance) * answers[1]
    assert abs(chance - threshold) < 1e-9 or (expected > 0) == (chance > threshold)
    assert compute_score("abstain", threshold, False, threshold=threshold) == 0


def test_out_of_range_is_refused() -> None:
    for arguments in (
        {"confidence": 1.2},
        {"confidence": math.nan},
        {"confidence": 0.5, "floor": 0.5},
        {"confidence": 0.5, "threshold": 1.0},
    ):
        with pytest.raises(ValueError, match="is not between"):
            compute_score("brier", right=True, **arguments)


# Two values: 0.8 four times (3 right), 0.4 six times (1 right, 5 wrong); o = 4/10.
PAIRS = [(0.8, True)] * 3 + [(0.8, False)] + [(0.4, True)] + [(0.4, False)] * 5


def test_the_decomposition_by_hand() -> None:
    found = decompose(PAIRS)
    # (3 * 0.04 + 0.64 + 0.36 + 5 * 0.16) / 10
    assert found.brier == pytest.approx(0.192)
    # 0.4 (0.8 - 0.75)^2 + 0.6 (0.4 - 1/6)^2 = 0.001 + 0.032667
    assert found.reliability == pytest.approx(0.033667, abs=1e-6)
    # 0.4 (0.75 - 0.4)^2 + 0.6 (1/6 - 0.4)^2 = 0.049 + 0.032667
    assert found.resolution == pytest.approx(0.081667, abs=1e-6)
    assert found.uncertainty == pytest.approx(0.24)
    assert found.calibration_error == pytest.approx(0.4 * 0.05 + 0.6 * (0.4 - 1 / 6))
    assert (found.count, found.values) == (10, 2)
    assert found.ratio == pytest.approx(0.8)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=60))
def test_the_brier_score_is_the_sum_of_its_terms_and_the_best_constant_has_the_uncertainty(pairs) -> None:
    found = decompose(pairs)
    assert found.brier == pytest.approx(found.reliability - found.resolution + found.uncertainty)
    constant = decompose([(found.accuracy, right) for _, right in pairs])
    assert constant.brier == pytest.approx(found.uncertainty)
    assert (constant.resolution, constant.calibration_error) == pytest.approx((0, 0))
    area = compute_risk_area(pairs)
    assert 0 <= area <= 1
    assert compute_risk_area([(0.5, right) for _, right in pairs]) == pytest.approx(1 - found.accuracy)


def test_a_constant_has_no_calibration_error_and_no_resolution() -> None:
    """Why calibration error alone is met by a policy that has learned nothing about its answers."""
    constant = decompose([(0.4, right) for _, right in PAIRS])
    assert constant.calibration_error == pytest.approx(0)
    assert (constant.resolution, constant.ratio) == pytest.approx((0, 1))


def test_risk_and_coverage_by_hand() -> None:
    sure, all_of_them = trace_coverage(PAIRS)
    assert (sure.threshold, sure.coverage, sure.risk) == (0.8, 0.4, 0.25)
    assert (all_of_them.coverage, all_of_them.risk, all_of_them.wrong) == (1.0, 0.6, 6)
    # Two of 0.9 (right), two of 0.1 (wrong): risks 0, 0, 1/3, 1/2.
    area = compute_risk_area([(0.9, True)] * 2 + [(0.1, False)] * 2)
    assert area == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)


def test_nothing_stated_is_refused() -> None:
    for function in (decompose, compute_risk_area):
        with pytest.raises(ValueError, match="no stated confidence"):
            function([])
    assert trace_coverage([]) == []
    with pytest.raises(ValueError, match="not between 0 and 1"):
        decompose([(1.5, True)])


def expect_advantage(deviation):
    """Expected advantage of stating 0.9 in a group with one that states 0.6, where 0.6 is the truth."""
    scores = {right: [compute_score("brier", stated, right) for stated in (0.6, 0.9)] for right in (True, False)}
    advantages = {right: compute_grpo_advantages(found, deviation=deviation) for right, found in scores.items()}
    surer = {right: found[1] or 0.0 for right, found in advantages.items()}
    return 0.6 * surer[True] + 0.4 * surer[False]


def test_divided_by_its_group_s_deviation_a_proper_score_is_proper_no_longer() -> None:
    """The loss of 0.45 where the answer is wrong becomes as large as the gain of 0.15 where it is right."""
    assert expect_advantage("none") == pytest.approx((0.6 * 0.15 - 0.4 * 0.45) / 2)  # -0.045
    assert expect_advantage("sample") == pytest.approx(0.2 * 2**-0.5, rel=1e-4)  # +-1/sqrt(2), right 6 times in ten
