"""ToolRL's reward for tool calls (arXiv 2504.13958): a format part in {0, 1} and a correctness part in [-3, 3].

Calls are (name, arguments) pairs, already parsed; the caller decides which replies are malformed (None). Values are
compared with Python's `==`, as in the released code: 1 equals 1.0 and also True.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from turnwise.core.types import RewardPart, Scored

Call = tuple[str, Mapping[str, Any]]
"""Tool name and arguments."""

Granularity = Literal["fine", "refined", "intermediate", "coarse"]
"""How partly right calls are scored: "fine" (the paper) by names, argument names and values; "refined" the same, but
names and argument names must agree as a whole; "intermediate" by names and by calls that are right as a whole; "coarse"
all or nothing."""


def compute_overlap(left: Iterable[str], right: Iterable[str]) -> float:
    """Multiset Jaccard `|intersection| / (|a| + |b| - |intersection|)`, in [0, 1]; two empty multisets agree (1)."""
    a, b = (
        Counter(list(left)),
        Counter(list(right)),
    )  # a mapping's keys: Counter itself would use its values as counts
    shared = (a & b).total()
    union = a.total() + b.total() - shared
    return shared / union if union else 1.0


def compute_correctness(
    predicted: Sequence[Call] | None, gold: Sequence[Call], *, granularity: Granularity = "fine", scale: float = 3.0
) -> float:
    """`2 scale S / S_max - scale`, in [-scale, scale].

    `S = J(names) + sum over matched gold calls of [J(argument names) + number of equal values]` and `S_max = 1 + sum_g
    (1 + |arguments of g|)`. Each gold call in order is matched with the best unused predicted call of the same name, if
    its score is above 0.

    Args:
        predicted: None for a reply whose calls could not be parsed or that has none where some were wanted: -scale.
        gold: an empty list gives 0 whatever was predicted (the format part judges that case).
        granularity: with "refined" J is 1 for equal multisets and else 0 (the released code also asks for equal order);
        with
            "intermediate" a matched call counts 1 of 1; with "coarse" the result is scale for calls equal up to order,
            else -scale (the released code: equal in order too).
        scale: 3 is the paper's; 1 its CORRECTMAX1 variant.

    Returns:
        scale exactly when the calls agree up to their order.
    """
    if not gold:
        return 0.0
    if predicted is None:
        return -scale
    best_possible = 1.0
    score = _overlap([name for name, _ in gold], [name for name, _ in predicted], granularity)
    unused = list(predicted)
    num_exact = 0
    for call in gold:
        best_possible += 1.0 if granularity in ("intermediate", "coarse") else 1.0 + len(call[1])
        scores = [_match(call, other, granularity) for other in unused]
        best = max(scores, default=0.0)
        if best > 0:
            score += best
            num_exact += _is_equal(call, unused.pop(scores.index(best)))
    if num_exact == len(gold) == len(predicted):
        return scale
    return -scale if granularity == "coarse" else 2 * scale * score / best_possible - scale


def _match(gold: Call, predicted: Call, granularity: Granularity) -> float:
    if gold[0] != predicted[0]:
        return 0.0
    if granularity in ("intermediate", "coarse"):
        return float(_is_equal(gold, predicted))
    equal = sum(key in predicted[1] and bool(predicted[1][key] == value) for key, value in gold[1].items())
    return _overlap(gold[1], predicted[1], granularity) + equal


def _overlap(gold: Iterable[str], predicted: Iterable[str], granularity: Granularity) -> float:
    overlap = compute_overlap(gold, predicted)
    return float(overlap == 1.0) if granularity == "refined" else overlap


def _is_equal(left: Call, right: Call) -> bool:
    return left[0] == right[0] and dict(left[1]) == dict(right[1])


def compute_tool_rl_reward(
    predicted: Sequence[Call] | None,
    gold: Sequence[Call],
    *,
    well_formed: bool,
    granularity: Granularity = "fine",
    scale: float = 3.0,
) -> Scored:
    """Format (1 if well formed, else 0) plus correctness, in [-3, 4] by default.

    The parts are "format" and "correctness".
    """
    correctness = compute_correctness(predicted, gold, granularity=granularity, scale=scale)
    parts = (RewardPart(name="format", value=float(well_formed)), RewardPart(name="correctness", value=correctness))
    return Scored(total=float(well_formed) + correctness, parts=parts)
