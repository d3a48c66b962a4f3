"""ToolRL's decomposition against hand-computed cases, and what holds for any calls."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.rewards.tool_rl import (
    Call,
    Granularity,
    compute_correctness,
    compute_overlap,
    compute_tool_rl_reward,
)

GOLD: list[Call] = [("find", {"city": "Vessa", "days": 3}), ("book", {"id": 7})]
"""S_max = 1 + (1 + 2) + (1 + 1) = 6."""

arguments = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=3)
calls = st.lists(st.tuples(st.sampled_from(["f", "g", "h"]), arguments), max_size=4)
granularities = st.sampled_from(["fine", "refined", "intermediate", "coarse"])


@pytest.mark.parametrize(
    ("predicted", "score"),
    [
        # names 1, find 1 + 2, book 1 + 1: all 6 of 6.
        ([("find", {"city": "Vessa", "days": 3}), ("book", {"id": 7})], 6),
        # Any order.
        ([("book", {"id": 7}), ("find", {"days": 3, "city": "Vessa"})], 6),
        # One value wrong: find 1 + 1.
        ([("find", {"city": "Vessa", "days": 4}), ("book", {"id": 7})], 5),
        # One argument missing: keys 1/2, values 1; find 1.5 of 3.
        ([("find", {"city": "Vessa"}), ("book", {"id": 7})], 4.5),
        # One argument too many: keys 2/3, values 2.
        ([("find", {"city": "Vessa", "days": 3, "x": 0}), ("book", {"id": 7})], 5 + 2 / 3),
        # One call missing: names 1/2, find 3.
        ([("find", {"city": "Vessa", "days": 3})], 3.5),
        # The same call twice instead: names {find} of {find, find, book} = 1/3, find 3; the second find is unused.
        ([("find", {"city": "Vessa", "days": 3})] * 2, 1 / 3 + 3),
        # One call too many: names 2/3, both matched.
        ([*GOLD, ("stop", {})], 5 + 2 / 3),
        # Nothing right: names 0.
        ([("stop", {})], 0),
        ([], 0),
    ],
)
def test_fine_reward_by_hand(predicted: list[Call], score: float) -> None:
    assert compute_correctness(predicted, GOLD) == pytest.approx(6 * score / 6 - 3)


def test_variants_by_hand() -> None:
    nearly: list[Call] = [("find", {"city": "Vessa"}), ("book", {"id": 7})]
    assert compute_correctness(nearly, GOLD, granularity="coarse") == -3.0
    assert compute_correctness(GOLD, GOLD, granularity="coarse") == 3.0
    # intermediate: S_max = 1 + 1 + 1; names 1, book right, find not: 2 of 3.
    assert compute_correctness(nearly, GOLD, granularity="intermediate") == pytest.approx(6 * 2 / 3 - 3)
    # refined: names agree (1), find's argument names do not (0) but one value does (1), book 2: 4 of 6.
    assert compute_correctness(nearly, GOLD, granularity="refined") == pytest.approx(6 * 4 / 6 - 3)
    assert compute_correctness(nearly, GOLD, scale=1.0) == pytest.approx(2 * 4.5 / 6 - 1)


def test_each_gold_call_takes_the_best_unused_prediction() -> None:
    gold: list[Call] = [("f", {"a": 1, "b": 2})]
    # The second prediction is better: keys 1 + 2 values. Names 1/2. S_max 4: S = 3.5.
    assert compute_correctness([("f", {"a": 9}), ("f", {"a": 1, "b": 2})], gold) == pytest.approx(6 * 3.5 / 4 - 3)


def test_malformed_and_unwanted_calls() -> None:
    assert compute_correctness(None, GOLD) == -3.0
    assert compute_correctness(None, []) == 0.0
    assert compute_correctness(GOLD, []) == 0.0


def test_total_has_both_parts() -> None:
    scored = compute_tool_rl_reward(GOLD, GOLD, well_formed=True)
    assert (scored.total, scored.part("format"), scored.part("correctness")) == (4.0, 1.0, 3.0)
    assert compute_tool_rl_reward(None, GOLD, well_formed=False).total == -3.0


@settings(max_examples=50)
@given(st.none() | calls, calls, granularities, st.booleans())
def test_bounds(predicted: list[Call] | None, gold: list[Call], granularity: Granularity, well_formed: bool) -> None:
    total = compute_tool_rl_reward(predicted, gold, well_formed=well_formed, granularity=granularity).total
    assert -3.0 <= total <= 4.0


@settings(max_examples=50)
@given(calls, st.data(), granularities)
def test_exactly_the_gold_calls_in_any_order_get_all(
    gold: list[Call], data: st.DataObject, granularity: Granularity
) -> None:
    predicted = data.draw(st.permutations(gold))
    assert compute_correctness(predicted, gold, granularity=granularity) == (3.0 if gold else 0.0)


@settings(max_examples=50)
@given(calls, calls, granularities)
def test_only_the_gold_calls_get_all(predicted: list[Call], gold: list[Call], granularity: Granularity) -> None:
    same = sorted(map(repr, ((n, sorted(a.items())) for n, a in predicted))) == sorted(
        map(repr, ((n, sorted(a.items())) for n, a in gold))
    )
    assert (compute_correctness(predicted, gold, granularity=granularity) == 3.0) == (same and bool(gold))


@settings(max_examples=50)
@given(arguments.filter(bool), st.data())
def test_more_right_values_never_score_less(gold: dict[str, int], data: st.DataObject) -> None:
    right = data.draw(st.sets(st.sampled_from(sorted(gold))))
    more = right | data.draw(st.sets(st.sampled_from(sorted(gold))))

    def score(keys: set[str]) -> float:
        return compute_correctness([("f", {k: v if k in keys else -1 for k, v in gold.items()})], [("f", gold)])

    assert score(more) >= score(right)
    assert (score(more) > score(right)) == (len(more) > len(right))


def test_overlap_counts_repetition() -> None:
    # {a, a, b} and {a, c}: 1 shared, 4 in the union.
    assert compute_overlap(["a", "a", "b"], ["a", "c"]) == 0.25
    assert compute_overlap([], []) == 1.0
    assert compute_overlap([], ["a"]) == 0.0
