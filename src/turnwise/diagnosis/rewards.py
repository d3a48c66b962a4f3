"""Rules on rewards that pay for something else than what was wanted."""

from __future__ import annotations

from statistics import fmean

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.findings import BROKEN, NO_SIGNAL, Finding
from turnwise.diagnosis.record import Record

ORDER = "rollout/truth_order"


def find_noise(record: Record) -> Finding | None:
    """Attempts that are the same to the last token are paid differently."""
    alike = sum(group.num_alike for group in record.groups)
    apart = sum(group.num_alike_paid_apart for group in record.groups)
    if alike < limit.LEAST_PAIRS or apart < limit.PAID_APART * alike or record.learned:
        return None
    order = record.mean(ORDER)
    return Finding(
        cause="reward_noise",
        problem="the reward is noisy: the same attempt at the same task is paid now more, now less",
        evidence=(
            f"{apart} of {alike} pairs of attempts with the same tokens, observations included, have different rewards",
            *([] if order is None else [f"{ORDER} {order:.2f} on average; 1 keeps the order of the truth"]),
        ),
        first="score one stored attempt ten times; repeat a judge's questions, fix seeds and time limits of the "
        "grader, or use larger groups",
        tier=BROKEN,
        strength=apart / alike / limit.PAID_APART,
    )


def find_hacking(record: Record) -> Finding | None:
    """The reward rises and the truth does not, or attempts that fail are paid more than those that succeed."""
    order, paid, truth = record.change(ORDER), record.paid, record.truth
    seen = []
    if order is not None and order.after < limit.TRUTH_ORDER:
        seen.append(f"{order}: attempts that fail are paid like those that succeed, or more")
    rises = paid is not None and truth is not None and paid.is_up(limit.LEAST_CHANGE)
    if paid is not None and truth is not None and rises and truth.rise < paid.rise / 4 and not record.learned:
        seen.append(f"{paid}, but {truth}")
    if not seen or record.learned or (not rises and (order is None or order.after > 0.5)):
        return None
    return Finding(
        cause="hacking",
        problem="the policy learns what the reward pays and not what was wanted",
        evidence=tuple(seen),
        first="read the best-paid attempts that failed, mend the reward or gate its other terms on success, and go on "
        "from an earlier checkpoint",
        tier=NO_SIGNAL,
        strength=2.0 + (limit.TRUTH_ORDER - order.after if order is not None else 0.0),
    )


def find_reward_without_truth(record: Record) -> Finding | None:
    """The reward knows nothing of the truth, though it is not noisy."""
    order = record.mean(ORDER)
    if order is None or order >= limit.TRUTH_ORDER or record.learned:
        return None
    mixed = [group for group in record.groups if len(set(group.truths)) > 1]
    return Finding(
        cause="hacking",
        problem="the reward does not follow the truth: attempts that fail are paid like those that succeed",
        evidence=(
            f"{ORDER} {order:.2f} on average",
            *([f"{fmean(g.has_signal for g in mixed):.0%} of {len(mixed)} mixed groups have signal"] if mixed else []),
        ),
        first="mend the reward: compare what it pays for a right and a wrong attempt",
        tier=NO_SIGNAL,
        strength=1.0,
    )
