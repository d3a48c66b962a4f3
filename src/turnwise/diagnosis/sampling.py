"""Rules on whether the tokens that train are those of the policy that trains."""

from __future__ import annotations

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.findings import BROKEN, STEPS, Finding
from turnwise.diagnosis.record import Record

GAP = "train/logprob_gap_mean"


def find_apart(record: Record) -> Finding | None:
    """Sampler and trainer give the same token different probabilities, with the same weights."""
    gaps = record.series(GAP)
    age = record.mean("train/staleness_mean") or 0.0
    wide = [(step, gap) for step, gap in gaps if gap > limit.GAP_NATS]
    if len(wide) < max(2, len(gaps) / 3) or age > 0:
        return None
    step, gap = max(wide, key=lambda pair: pair[1])
    share = record.mean("train/effective_share")
    return Finding(
        cause="sampler_apart",
        problem="sampler and trainer are apart: the same weights give the same tokens different probabilities",
        evidence=(
            f"{GAP} above {limit.GAP_NATS} nats in {len(wide)} of {len(gaps)} steps, {gap:.2g} in step {step}",
            *([] if share is None else [f"train/effective_share {share:.2f} on average; 1 where they agree"]),
        ),
        first="compare temperature, weights and precision of engine and trainer; loss.recompute_old=true and "
        "loss.correction.mode=truncate help meanwhile",
        tier=BROKEN,
        strength=gap / limit.GAP_NATS,
    )


def find_staleness(record: Record) -> Finding | None:
    """What trains was sampled by weights that are long gone."""
    age = record.change("train/staleness_mean")
    if age is None or age.after < limit.STALE_VERSIONS or record.learned:
        return None
    share, truth = record.change("train/effective_share"), record.truth
    return Finding(
        cause="staleness",
        problem="what trains is too old: the policy has changed since it was sampled",
        evidence=(
            f"{age}, in versions",
            f"schedule.max_staleness={record.option('schedule.max_staleness')}, "
            f"loss.correction.mode={record.option('loss.correction.mode')}",
            *([] if share is None else [str(share)]),
            *([] if truth is None else [str(truth)]),
        ),
        first="lower schedule.max_staleness to 1 or 2, or set loss.correction.mode=auto",
        tier=STEPS,
        strength=8.0 * age.after / limit.STALE_VERSIONS,
    )
