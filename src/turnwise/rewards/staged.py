"""Progressive reward shaping (arXiv 2512.07478): later stages count only once the earlier ones pass.

The paper's order is format first, then the quality of the answer. Its weights and thresholds are not known.
"""

from __future__ import annotations

from collections.abc import Sequence


def compute_staged_reward(scores: Sequence[float], weights: Sequence[float], thresholds: Sequence[float]) -> float:
    """Sum the weighted scores of all stages up to and including the first whose score is below its threshold.

    With weights of at least 0, the only ones a recipe accepts, a better score at a stage never lowers the reward.

    Raises:
        ValueError: the lists differ in length, or a score is not in [0, 1].
    """
    total = 0.0
    for score, weight, threshold in zip(scores, weights, thresholds, strict=True):
        if not 0 <= score <= 1:
            raise ValueError(f"a stage has score {score}; scores must lie between 0 and 1")
        total += weight * score
        if score < threshold:
            break
    return total
