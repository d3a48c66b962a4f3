"""Rules on what the policy writes: format, entropy, length, limits, tools."""

from __future__ import annotations

from collections import Counter

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.findings import BROKEN, NO_SIGNAL, STEPS, Finding
from turnwise.diagnosis.record import Record


def find_format(record: Record) -> Finding | None:
    """Replies are no actions, and the policy is still guessing what to write."""
    errors, turns = record.change("rollout/parse_errors"), record.change("rollout/turns")
    entropy, success = record.change("train/entropy"), record.truth
    if errors is None or turns is None or not turns.after:
        return None
    share = errors.after / turns.after
    guesses = entropy is not None and min(entropy.before, entropy.after) >= limit.GUESSING_NATS
    if share < limit.MALFORMED and not guesses:
        return None
    if (success is not None and success.after > 0.2) or record.learned:
        return None
    if not guesses and entropy is not None and share < 2 * limit.MALFORMED:
        return None
    return Finding(
        cause="format",
        problem="the policy has not learned the format: most of what it writes is no action",
        evidence=(
            f"{errors}, which is {share:.2f} per reply",
            *([] if entropy is None else [f"{entropy}, in nats per token"]),
            *([] if success is None else [str(success)]),
        ),
        first="lengthen the warm-up (sft.steps) until its demonstrations' format is copied, or sample well-formed "
        "calls only (rollout.grammar=calls)",
        tier=NO_SIGNAL,
        strength=3.0,
    )


def find_collapse(record: Record) -> Finding | None:
    """The entropy is gone before the tasks are solved."""
    entropy, truth = record.change("train/entropy"), record.truth
    if entropy is None or entropy.before <= 0 or record.learned:
        return None
    if entropy.after > limit.ENTROPY_LEFT * entropy.before:
        return None
    return Finding(
        cause="entropy_collapse",
        problem="the entropy has collapsed: the policy repeats itself before it has found what succeeds",
        evidence=(f"{entropy}, in nats per token", *([] if truth is None else [str(truth)])),
        first="take loss.method=clip_higher or an entropy bonus (loss.entropy_target), a lower train.lr, and an "
        "earlier checkpoint",
        tier=STEPS,
        strength=limit.ENTROPY_LEFT * entropy.before / max(entropy.after, 1e-6),
    )


def find_growth(record: Record) -> Finding | None:
    """The entropy grows: the policy comes apart."""
    entropy, truth = record.change("train/entropy"), record.truth
    if entropy is None or record.learned or entropy.after < max(limit.ENTROPY_GROWN * entropy.before, 0.3):
        return None
    bonus = record.option("loss.entropy_coefficient") or 0.0
    return Finding(
        cause="entropy_growth",
        problem="the entropy grows: the policy becomes more random instead of better",
        evidence=(
            f"{entropy}, in nats per token",
            f"loss.entropy_coefficient={bonus:g}",
            *([] if truth is None else [str(truth)]),
        ),
        first="lower loss.entropy_coefficient" if bonus > 0 else "lower train.lr, and go on from an earlier checkpoint",
        tier=STEPS,
        strength=entropy.after / limit.ENTROPY_GROWN / max(entropy.before, 1e-3) * (2 if bonus > 0 else 1),
    )


def find_drift(record: Record) -> Finding | None:
    """Replies become much longer or shorter, and no better."""
    length, truth = record.change("rollout/length_mean"), record.truth
    if length is None or length.before <= 0 or length.after <= 0 or record.learned:
        return None
    factor = max(length.after / length.before, length.before / length.after)
    if factor < limit.LENGTH_FACTOR or abs(length.rise) < limit.DEVIATIONS * length.error:
        return None
    way = "longer" if length.rise > 0 else "shorter"
    return Finding(
        cause="length_drift",
        problem=f"trajectories become {way} and not better",
        evidence=(f"{length}, in tokens", *([] if truth is None else [str(truth)])),
        first="see what pays for length: [rewards], credit.shaping.length_weight and few_calls, and loss.aggregation "
        "(sequence means favour long failures)",
        tier=STEPS,
        strength=factor / limit.LENGTH_FACTOR,
    )


def find_truncation(record: Record) -> Finding | None:
    """A limit ends many trajectories of a policy that knows its format."""
    cut, entropy = record.change("rollout/truncated"), record.change("train/entropy")
    if cut is None or cut.after < limit.CUT or record.learned:
        return None
    if entropy is not None and min(entropy.before, entropy.after) >= limit.GUESSING_NATS:
        return None
    dropped, sampled = record.mean("dropped/truncated"), record.mean("rollout/sampled_tokens")
    options = ", ".join(
        f"rollout.{name}={record.option(f'rollout.{name}')}" for name in ("max_turns", "max_turn_tokens", "max_tokens")
    )
    lost = [] if not dropped or not sampled else [f"dropped/truncated is {dropped / sampled:.0%} of the sampled tokens"]
    ends = [(truth, cut_) for group in record.groups for truth, cut_ in zip(group.truths, group.truncated, strict=True)]
    won = [truth for truth, was_cut in ends if was_cut]
    if won:
        lost.append(f"{sum(truth > 0.5 for truth in won)} of {len(won)} stored attempts that were cut succeeded")
    return Finding(
        cause="truncation",
        problem="limits end many trajectories before they are done, so that failing is all they teach",
        evidence=(str(cut), options, *lost),
        first="raise the limit that the transcripts run into (rollout.max_turn_tokens, max_tokens or max_turns)",
        tier=BROKEN,
        strength=cut.after / limit.CUT,
    )


def find_failing_tool(record: Record) -> Finding | None:
    """One tool fails, whatever it is called with."""
    calls: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    examples = {}
    for group in record.groups:
        for name, count in group.tools.items():
            calls[name] += count.calls
            raised[name] += count.raised
            if count.example:
                examples.setdefault(name, count.example)
    for row in () if record.groups else record.steps:
        for key, value in row.items():
            if key.startswith("tool/") and key.endswith("_calls"):
                calls[key[5:-6]] += int(value or 0)
    worst, share, evidence = "", 0.0, ()
    for name, count in calls.items():
        if count < limit.LEAST_CALLS:
            continue
        if raised[name] >= limit.RAISED * count and raised[name] / count > share:
            worst, share = name, raised[name] / count
            evidence = (f"{raised[name]} of {count} stored calls of {name!r} raised: {examples[name][:200]}",)
        failed = record.change(f"tool/{name}_errors")
        if failed is not None and min(failed.before, failed.after) >= limit.FAILED and failed.after > share:
            worst, share, evidence = name, failed.after, (*evidence, str(failed))
    if not worst:
        return None
    return Finding(
        cause="tool_failing",
        problem=f"the tool {worst!r} fails, and the policy is told so as if it were to blame",
        evidence=evidence,
        first=f"call {worst!r} by hand with a stored call's arguments and mend it; raise ToolFailure only for what the "
        "model did wrong",
        tier=BROKEN,
        strength=share / limit.RAISED,
    )
