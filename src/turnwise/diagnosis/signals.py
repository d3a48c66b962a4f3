"""Rules on what credit can compare: groups without signal, and why they have none."""

from __future__ import annotations

from statistics import fmean

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.findings import BROKEN, NO_SIGNAL, Finding
from turnwise.diagnosis.record import Change, Record

EQUAL = "credit/no_signal_groups"


def find_constant_reward(record: Record) -> Finding | None:
    """No group has two rewards, and yet its members do not fare alike."""
    silent, success = record.mean(EQUAL), record.mean("rollout/success")
    if silent is None or silent < 0.99:
        return None
    mixed = [group for group in record.groups if len(set(group.truths)) > 1]
    if record.groups:
        if len(mixed) < 0.05 * len(record.groups) or any(group.has_signal for group in record.groups):
            return None
        seen = f"in {len(mixed)} of {len(record.groups)} stored groups some members succeeded and others did not"
    elif success is None or not limit.NONE_SOLVED < success < limit.ALL_SOLVED:
        return None
    else:
        seen = f"rollout/success {success:.2f}, so attempts differ"
    return Finding(
        cause="constant_reward",
        problem="the reward is the same for every attempt at a task, so credit has nothing to compare",
        evidence=(f"{EQUAL} {silent:.2f} over {len(record.steps)} steps", seen),
        first="mend the reward: score a right and a wrong attempt by hand, and check the weights and caps in [rewards]",
        tier=NO_SIGNAL,
        strength=2.0,
    )


def find_too_easy(record: Record) -> Finding | None:
    """From the first steps on nearly every group is solved by all its members."""
    silent, success = record.change(EQUAL), record.change("rollout/success")
    if silent is None or success is None:
        return None
    if min(silent.before, silent.after) < limit.NO_SIGNAL or success.before < limit.ALL_SOLVED:
        return None
    return Finding(
        cause="too_easy",
        problem="the tasks are too easy: all members of most groups solve them, so credit has nothing to compare",
        evidence=(str(silent), str(success)),
        first="draw harder tasks (other kinds in environment.args, curriculum.sampler=difficulty), or stop: the policy "
        "has learned these",
        tier=NO_SIGNAL,
        strength=silent.before / limit.NO_SIGNAL,
    )


def find_too_hard(record: Record) -> Finding | None:
    """Hardly an attempt succeeds, from the first step to the last."""
    silent, success = record.change(EQUAL), record.change("rollout/success")
    if silent is None or success is None:
        return None
    if min(silent.before, silent.after) < limit.NO_SIGNAL or not _is_too_hard(record, success):
        return None
    return Finding(
        cause="too_hard",
        problem="the tasks are too hard for the policy: hardly an attempt succeeds, so credit has nothing to compare",
        evidence=(str(silent), str(success)),
        first="check that a demonstrator can solve them (`turnwise check`), then begin with easier kinds, a longer "
        "warm-up or larger groups (rollout.group_size)",
        tier=NO_SIGNAL,
        strength=silent.after / limit.NO_SIGNAL,
    )


def _is_too_hard(record: Record, success: Change) -> bool:
    """Return whether hardly a task is solved, from the first policy on: one that solved some has lost it."""
    rows = record.heldout
    if rows and rows[0]["low"] > limit.NONE_SOLVED:
        return False
    if len(rows) > 1 and max(row["success"] for row in rows) <= limit.NONE_SOLVED:
        return True
    trained = max(success.before, success.after) <= limit.NONE_SOLVED
    return trained and record.first(success.name) <= 2 * limit.NONE_SOLVED


def find_small_groups(record: Record) -> Finding | None:
    """Success is neither rare nor sure, and yet most groups agree."""
    silent, success = record.change(EQUAL), record.change("rollout/success")
    if silent is None or success is None or record.may_learn or min(silent.before, silent.after) >= 0.99:
        return None
    middle = all(limit.NONE_SOLVED < share < limit.ALL_SOLVED for share in (success.before, success.after))
    if min(silent.before, silent.after) < limit.AGREED or not middle or success.rise <= -limit.LEAST_CHANGE:
        return None
    means = [fmean(group.truths) for group in record.groups if group.truths]
    solved, failed = (sum(mean == end for mean in means) / max(1, len(means)) for end in (1.0, 0.0))
    if solved >= limit.MOSTLY_SOLVED:
        return Finding(
            cause="too_easy",
            problem="most tasks are too easy and the others too hard: all members of most groups succeed, and none of "
            "others",
            evidence=(
                str(silent),
                str(success),
                f"of {len(means)} stored groups {solved:.0%} are solved by all members and {failed:.0%} by none",
            ),
            first="draw the kinds of tasks that are not solved more often (environment.args, or "
            "curriculum.sampler=uniform)",
            tier=NO_SIGNAL,
            strength=silent.after / limit.AGREED,
        )
    size = record.option("rollout.group_size")
    return Finding(
        cause="small_groups",
        problem="most groups agree on their reward although some tasks are solved and others not: groups are too "
        "small, or their members too alike",
        evidence=(str(silent), str(success), f"rollout.group_size={size}"),
        first="raise rollout.group_size, or draw again where members agree (rollout.dynamic_sampling.metric=reward)",
        tier=NO_SIGNAL,
        strength=silent.after / limit.AGREED / 2,
    )


def find_duplicates(record: Record) -> Finding | None:
    """The members of a group are copies of each other, also where they fail."""
    identical, success = record.mean("rollout/identical_groups"), record.mean("rollout/success")
    if identical is None or identical < limit.ALIKE / 2:
        return None
    open_groups = [group for group in record.groups if not group.truths or fmean(group.truths) <= limit.ALL_SOLVED]
    if record.groups:
        share = fmean(group.is_identical for group in open_groups) if open_groups else 0.0
        seen = f"{share:.0%} of {len(open_groups)} stored groups that were not solved by all are copies"
        if len(open_groups) < 5:
            return None
    else:
        share, seen = identical, f"rollout/success {success}"
        if success is not None and success > limit.ALIKE:
            return None
    if share < limit.ALIKE:
        return None
    return Finding(
        cause="duplicate_groups",
        problem="the members of a group are copies of each other, so a group counts as one attempt",
        evidence=(
            f"rollout/identical_groups {identical:.2f} over {len(record.steps)} steps at rollout.temperature="
            f"{record.option('rollout.temperature')}",
            seen,
        ),
        first="raise rollout.temperature to 1; if it is 1, see that the engine uses every request's own seed",
        tier=BROKEN,
        strength=share / limit.ALIKE,
    )
