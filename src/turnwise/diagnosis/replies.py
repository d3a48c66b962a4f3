"""Rules on what the policy writes: format, entropy, length, limits, tools."""

from __future__ import annotations

import re
from statistics import fmean

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.credit import follows_length
from turnwise.diagnosis.facts import ToolCount
from turnwise.diagnosis.findings import BROKEN, NO_SIGNAL, STEPS, Finding
from turnwise.diagnosis.record import Record


def find_format(record: Record) -> Finding | None:
    """Replies are no actions, and the policy is still guessing what to write."""
    errors, turns = record.change("rollout/parse_errors"), record.change("rollout/turns")
    entropy, success = record.change("train/entropy"), record.truth
    if errors is None or turns is None or not turns.after:
        return None
    share = errors.after / turns.after
    first = record.first(errors.name) / max(1e-9, record.first(turns.name))
    guesses = entropy is not None and min(record.first(entropy.name), entropy.after) >= limit.GUESSING_NATS
    if min(share, first) < limit.MALFORMED and not guesses:
        return None  # where the first policy knew the format, it was lost and not left unlearned
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
        first="lengthen the warm-up (sft.steps) until it copies the demonstrations' format, or sample well-formed "
        "calls only (rollout.grammar=calls)",
        tier=NO_SIGNAL,
        strength=3.0,
    )


def find_collapse(record: Record) -> Finding | None:
    """The entropy is gone before the tasks are solved."""
    entropy, truth = record.change("train/entropy"), record.truth
    if entropy is None or entropy.before <= 0 or record.may_learn or (truth and truth.after >= limit.ALL_SOLVED):
        return None
    copies = record.change("rollout/identical_groups")
    more = copies is not None and copies.rise >= limit.MORE_COPIES
    if entropy.after > (limit.ENTROPY_FALLEN if more else limit.ENTROPY_LEFT) * entropy.before:
        return None
    return Finding(
        cause="entropy_collapse",
        problem="the entropy has collapsed: the policy repeats itself before it has found what succeeds",
        evidence=(
            f"{entropy}, in nats per token",
            *([str(copies)] if more else []),
            f"loss.entropy_coefficient={record.option('loss.entropy_coefficient', 0.0):g}",
            *([] if truth is None else [str(truth)]),
        ),
        first="take loss.method=clip_higher or an entropy bonus (loss.entropy_target), a lower train.lr, and an "
        "earlier checkpoint",
        tier=STEPS,
        strength=limit.ENTROPY_LEFT * entropy.before / max(entropy.after, 1e-6),
    )


def find_growth(record: Record) -> Finding | None:
    """The entropy grows: the policy comes apart."""
    entropy, truth = record.change("train/entropy"), record.truth
    if entropy is None or record.may_learn or entropy.after < max(limit.ENTROPY_GROWN * entropy.before, 0.3):
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
    """Credit pays for length, or replies become much longer or shorter, and no better."""
    length, truth = record.change("rollout/length_mean"), record.truth
    if length is None or length.before <= 0 or length.after <= 0 or record.learned:
        return None
    factor = max(length.after / length.before, length.before / length.after)
    cosine = follows_length(record)
    if cosine is not None:
        problem = f"credit pays for {'longer' if cosine > 0 else 'shorter'} trajectories and not for better ones"
    elif record.may_learn:
        return None
    elif factor >= limit.LENGTH_FACTOR and abs(length.rise) >= limit.DEVIATIONS * length.error:
        problem = f"trajectories become {'longer' if length.rise > 0 else 'shorter'} and not better"
    else:
        return None
    return Finding(
        cause="length_drift",
        problem=problem,
        evidence=(
            *([] if cosine is None else [f"cosine of advantage and length {cosine:.2f} within the stored groups"]),
            f"{length}, in tokens",
            *([] if truth is None else [str(truth)]),
        ),
        first="see what pays for length: [rewards], credit.shaping.length_weight and few_calls, and loss.aggregation "
        "(sequence means favour long failures)",
        tier=STEPS if cosine is None else BROKEN,
        strength=factor / limit.LENGTH_FACTOR if cosine is None else 2.0 + abs(cosine),
    )


def find_truncation(record: Record) -> Finding | None:
    """A limit ends many trajectories of a policy that knows its format."""
    cut, entropy = record.change("rollout/truncated"), record.change("train/entropy")
    if cut is None or cut.after < limit.CUT or record.learned:
        return None
    if (follows_length(record) or 0.0) > 0:
        return None  # what pays for length is to blame
    if entropy is not None and min(entropy.before, entropy.after) >= limit.GUESSING_NATS:
        return None
    # Limits that the first policy did not run into are a symptom of what became of it.
    is_cut_early = record.first(cut.name) >= limit.CUT / 3
    dropped, sampled = record.mean("dropped/truncated"), record.mean("rollout/sampled_tokens")
    options = ", ".join(
        f"rollout.{name}={record.option(f'rollout.{name}')}" for name in ("max_turns", "max_turn_tokens", "max_tokens")
    )
    lost = [] if not dropped or not sampled else [f"dropped/truncated is {dropped / sampled:.0%} of the sampled tokens"]
    ends = [end for group in record.groups for end in zip(group.truths, group.truncated, strict=True)]
    whole, parts = ([truth for truth, was_cut in ends if was_cut is kind] for kind in (False, True))
    if cut.after < limit.NEARLY_ALL_CUT and whole and fmean(whole) < limit.WHOLE_SUCCEED:
        return None  # those that no limit ended fail too
    if parts and whole:
        lost.append(
            f"{sum(truth > 0.5 for truth in parts)} of {len(parts)} stored attempts that were cut succeeded, "
            f"{sum(truth > 0.5 for truth in whole)} of {len(whole)} others"
        )
    return Finding(
        cause="truncation",
        problem="limits end many trajectories before they are done, so that failing is all they teach",
        evidence=(str(cut), options, *lost),
        first="raise the limit that the transcripts run into (rollout.max_turn_tokens, max_tokens or max_turns)",
        tier=BROKEN if is_cut_early else STEPS,
        strength=cut.after / limit.CUT / (1 if is_cut_early else 4),
    )


def find_failing_tool(record: Record) -> Finding | None:
    """One tool fails, whatever it is called with."""
    failing = [each for name, count in _count_calls(record).items() if (each := _judge_tool(record, name, count))]
    if crashed := re.search(r"tool '([^']+)' crashed", record.ended):
        failing.append((1.0, crashed[1], ("it crashed so often that the run ended",)))
    if not failing:
        return None
    share, name, evidence = max(failing)
    return Finding(
        cause="tool_failing",
        problem=f"the tool {name!r} fails, and the policy is told so as if it were to blame",
        evidence=evidence,
        first=f"call {name!r} by hand with a stored call's arguments and mend it; raise ToolFailure only for what the "
        "model did wrong",
        tier=BROKEN,
        strength=share / limit.RAISED,
    )


def _judge_tool(record: Record, name: str, count: ToolCount) -> tuple[float, str, tuple[str, ...]] | None:
    """Return the share of calls that fail by the tool's fault, its name and the evidence; None if it is sound."""
    if count.calls < limit.LEAST_CALLS:
        return None
    share, evidence = count.raised / count.calls, []
    if share >= limit.RAISED:
        evidence.append(f"{count.raised} of {count.calls} stored calls of {name!r} raised: {count.example[:200]}")
    failed = record.change(f"tool/{name}_errors")
    # Refusals are no proof: a policy that learns may have one tool that it always calls wrongly.
    if failed is not None and min(failed.before, failed.after) >= limit.FAILED and not record.may_learn:
        share = max(share, failed.after)
        evidence.append(str(failed))
    return (share, name, tuple(evidence)) if evidence else None


def _count_calls(record: Record) -> dict[str, ToolCount]:
    """Count the calls in the stored groups, or by the metrics where there are none."""
    counts: dict[str, ToolCount] = {}
    for group in record.groups:
        for name, more in group.tools.items():
            known = counts.get(name, ToolCount(calls=0, raised=0, example=""))
            counts[name] = ToolCount(
                calls=known.calls + more.calls,
                raised=known.raised + more.raised,
                example=known.example or more.example,
            )
    if record.groups:
        return counts
    metrics = {name for row in record.steps for name in row if name.startswith("tool/") and name.endswith("_calls")}
    return {
        metric[5:-6]: ToolCount(calls=int(sum(value for _, value in record.series(metric))), raised=0, example="")
        for metric in metrics
    }
