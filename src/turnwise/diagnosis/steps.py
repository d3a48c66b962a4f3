"""Rules on the steps: do the weights move, how far, and on which tokens."""

from __future__ import annotations

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.findings import BROKEN, STEPS, Finding
from turnwise.diagnosis.record import Record

UPDATE = "train/relative_update"


def find_frozen(record: Record) -> Finding | None:
    """Updates are below the resolution of the weights."""
    changed, served = record.mean("train/changed_share"), record.mean("train/served_share")
    stepped = (record.mean("train/grad_norm") or 0.0) > 0 and (record.mean("train/lr") or 0.0) > 0
    stopped = "below the resolution of the weights" in record.ended
    still = changed is not None and changed < limit.LEAST_MOVED
    rounded = served is not None and served < limit.LEAST_SERVED
    if not stopped and not (stepped and (still or rounded)):
        return None
    dtype, rate = record.option("model.dtype"), record.option("train.lr")
    where = [] if changed is None else [f"train/changed_share {changed:.4f} on average"]
    where += [] if served is None else [f"train/served_share {served:.4f}: what engines sample from"]
    return Finding(
        cause="frozen_weights",
        problem=f"the weights do not move: updates are below the resolution of {dtype}",
        evidence=(*where, f"train.lr={rate:g}", *([f"the run ended: {record.ended[:160]}"] if stopped else [])),
        first="raise train.lr, or keep the weights in float32 (model.dtype)",
        tier=BROKEN,
        strength=5.0,
    )


def find_low_rate(record: Record) -> Finding | None:
    """The weights move, but by too little to matter in this many steps."""
    path = _sum_updates(record)
    if path is None or path >= limit.LEAST_PATH or record.learned or len(record.steps) < 4:
        return None
    signal = record.mean("credit/no_signal_groups")
    if signal is not None and signal > limit.NO_SIGNAL:
        return None
    truth = record.truth
    return Finding(
        cause="lr_low",
        problem="the learning rate is too low for so few steps: the weights have hardly moved",
        evidence=(
            f"{UPDATE} sums to {path:.2g} of the weights' length over {len(record.steps)} steps",
            f"train.lr={record.option('train.lr'):g}",
            *([] if truth is None else [str(truth)]),
        ),
        first="raise train.lr tenfold, or train for more steps",
        tier=STEPS,
        strength=limit.LEAST_PATH / max(path, 1e-9),
    )


def find_high_rate(record: Record) -> Finding | None:
    """Updates are so large that what was learned is lost."""
    size, truth, times = record.series(UPDATE), record.truth, _count_updates(record)
    largest = max((value for _, value in size), default=0.0)
    if max(largest / limit.LARGE_UPDATE, times * largest / limit.LARGE_STEP) < 1 or record.learned:
        return None
    is_single = largest >= limit.LARGE_UPDATE
    step = next(step for step, value in size if value == largest)
    ratio = record.series("train/ratio_max")
    spread = [] if not ratio else [f"train/ratio_max up to {max(value for _, value in ratio):.3g}"]
    return Finding(
        cause="lr_high",
        problem="the learning rate is too high: "
        + ("single updates rewrite the weights" if is_single else "the updates of one step rewrite the weights"),
        evidence=(
            f"{UPDATE} {largest:.2g} of the weights' length in step {step}" + ("" if is_single else f", {times} times"),
            f"train.lr={record.option('train.lr'):g}",
            *spread,
            *([] if truth is None else [str(truth)]),
        ),
        first="lower train.lr tenfold"
        + ("" if is_single else ", or loss.epochs and loss.updates_per_step,")
        + " and go on from an earlier checkpoint",
        tier=STEPS,
        strength=20.0 * largest / limit.LARGE_UPDATE if is_single else 2.0 * times * largest / limit.LARGE_STEP,
    )


def find_clipping(record: Record) -> Finding | None:
    """The loss clips most of what it should learn from."""
    clipped = record.change("train/clip_fraction")
    if clipped is None or record.learned or max(clipped.before, clipped.after) < limit.CLIPPED:
        return None
    options = ", ".join(f"{name}={value}" for name, value in (record.option("loss.options") or {}).items())
    return Finding(
        cause="clip_saturation",
        problem="the loss clips the gradient of many tokens, which then teach nothing",
        evidence=(
            str(clipped),
            f"loss.method={record.option('loss.method')}, {options or 'default options'}",
            f"loss.epochs={record.option('loss.epochs')}, "
            f"loss.updates_per_step={record.option('loss.updates_per_step')}",
        ),
        first="widen the clip (loss.options), take fewer epochs or updates per step, or lower train.lr",
        tier=STEPS,
        strength=10.0 * max(clipped.before, clipped.after) / limit.CLIPPED,
    )


def find_divergence(record: Record) -> Finding | None:
    """The policy runs away from the one that RL started from."""
    kl, truth = record.change("train/kl_reference"), record.truth
    if kl is None or record.learned or abs(kl.after) < limit.KL_NATS:
        return None
    path = _sum_updates(record)
    if path is not None and path < 10 * limit.LEAST_PATH:
        return None  # it has hardly moved: the reference is another policy than that which RL started from
    kind, weight = record.option("loss.kl.kind"), record.option("loss.kl.coefficient")
    weak = " (the gradient of k1 in the loss is 0 on average)" if kind == "k1" else ""
    return Finding(
        cause="kl_runaway",
        problem="the policy runs away from the policy that RL started from",
        evidence=(
            f"{kl}, in nats per token",
            f"loss.kl.coefficient={weight:g}, kind={kind}{weak}",
            *([] if truth is None else [str(truth)]),
        ),
        first="raise loss.kl.coefficient with kind=k3, or lower train.lr",
        tier=STEPS,
        strength=5.0 * abs(kl.after) / limit.KL_NATS,
    )


def find_observations(record: Record) -> Finding | None:
    """Tokens that the policy did not write train with its credit."""
    if not record.context_trained and record.option("loss.mask_observations", True):
        return None
    return Finding(
        cause="observations_train",
        problem="tokens of observations train as if the policy had written them",
        evidence=(
            f"the ledger counts {record.context_trained} observation tokens that trained",
            "loss.mask_observations=false",
        ),
        first="set loss.mask_observations=true",
        tier=BROKEN,
        strength=10.0,
    )


def _sum_updates(record: Record) -> float | None:
    sizes = record.series(UPDATE)
    return _count_updates(record) * sum(value for _, value in sizes) if sizes else None


def _count_updates(record: Record) -> int:
    """Return how many updates an RL step makes."""
    return int(record.option("loss.updates_per_step") or 1) * int(record.option("loss.epochs") or 1)
