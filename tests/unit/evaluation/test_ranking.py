"""Areas under the curve, counted by hand."""

from turnwise.evaluation.ranking import compute_auc


def test_pairs_are_counted_and_ties_half() -> None:
    assert compute_auc([0.1, 0.9], [False, True]) == 1.0
    assert compute_auc([0.9, 0.1], [False, True]) == 0.0
    assert compute_auc([0.5, 0.5, 0.5], [False, True, True]) == 0.5
    # Positives 3 and 1 against negatives 2 and 1: won, won, lost, tied.
    assert compute_auc([3, 1, 2, 1], [True, True, False, False]) == (1 + 1 + 0 + 0.5) / 4
    assert compute_auc([1.0], [True]) is None
    assert compute_auc([], []) is None
