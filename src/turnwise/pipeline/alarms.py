"""Finds signs in a step's metrics that nothing is being learned."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.types import Invalid, StopReason, TrajectoryGroup
from turnwise.rollout.workers import find_cause

MIN_EXCEPTIONS = 3
"""Number of equal exceptions of one tool in a step from which they are reported."""
QUIET_STEPS = 10
"""Steps without an alarm after which it has ended: one that comes and goes is one alarm, not a line every other
step."""


def describe_alarms(values: Mapping[str, float | None]) -> list[str]:
    """Return warnings for people about a step's recorded metrics; empty if all is well."""
    alarms = []
    if values.get("rollout/identical_groups") == 1:
        alarms.append(
            "alarm: in every group all members sampled the same tokens although rollout.temperature is above 0; the "
            "engine ignores the request's seed or the temperature, or the policy has collapsed"
        )
    if values.get("credit/no_signal_groups") == 1:
        alarms.append(
            "alarm: no group had members with different rewards, so credit has nothing to compare; change the tasks "
            "or the reward"
        )
    sampled = values.get("rollout/sampled_tokens") or 0
    if 0 < sampled <= (values.get("dropped/truncated") or 0):
        alarms.append(
            "alarm: a limit ended every trajectory, and rollout.train_truncated=false trains none of them; raise "
            "rollout.max_turn_tokens, rollout.max_tokens or rollout.max_turns"
        )
    stepped = (values.get("train/grad_norm") or 0) > 0 and (values.get("train/lr") or 0) > 0
    if values.get("train/changed_tensors") == 0 and stepped:
        alarms.append(
            "alarm: the optimizer stepped and no weight changed; the learning rate is below the precision of the "
            "weights' dtype, or the optimizer holds other tensors than the model"
        )
    return alarms


def describe_exceptions(groups: Sequence[TrajectoryGroup]) -> dict[str, str]:
    """Return warnings about exceptions raised by the code of tools, by tool and kind of exception.

    The model saw the error and the episode continued, so the rewards look like those of a weak policy.
    """
    records = [
        record for group in groups for t in group.trajectories for turn in t.turns for record in turn.tool_records
    ]
    calls = Counter(record.call.name for record in records)
    raised: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.exception is not None:
            raised.setdefault((record.call.name, record.exception.split(":")[0]), []).append(record.exception)
    return {
        f"{tool} {kind}": f"alarm: tool {tool!r} raised {kind} in {len(each)} of {calls[tool]} calls, and the model "
        f"was told so as if it were to blame: {_shorten(each[0])}; mend the tool, or raise ValueError for what the "
        "model did wrong"
        for (tool, kind), each in raised.items()
        if len(each) >= MIN_EXCEPTIONS
    }


def describe_invalid(groups: Sequence[TrajectoryGroup]) -> dict[str, str]:
    """Return warnings about trajectories that could not be scored, by their most common cause; empty if none.

    Cut trajectories are not failures.
    """
    members = [(group.draw, t) for group in groups for t in group.trajectories]
    reasons = [
        (find_cause(t.reward.reason, draw), t.reward.reason)
        for draw, t in members
        if isinstance(t.reward, Invalid) and t.stop is not StopReason.CUT
    ]
    if not reasons:
        return {}
    cause, count = Counter(cause for cause, _ in reasons).most_common(1)[0]
    example = dict(reversed(reasons))[cause]
    text = (
        f"alarm: {len(reasons)} of {len(members)} trajectories could not be scored and train nothing; most often "
        f"({count}x): {_shorten(example)}"
    )
    return {re.sub(r"[-\d.]+", "", cause): text}


def _shorten(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."


@dataclass(slots=True)
class _Ongoing:
    first: int
    last: int
    count: int = 1


class AlarmWatch:
    """Reports an alarm when it begins and when it ends, and not in between. Alarms with the same words up to the first
    semicolon are one: the numbers behind it may change from step to step."""

    def __init__(self) -> None:
        self._ongoing: dict[str, _Ongoing] = {}

    def follow(self, step: int, alarms: Sequence[str]) -> list[str]:
        """Return the messages after `step`, given its alarms."""
        lines = []
        for alarm in alarms:
            what = alarm.partition(";")[0]
            ongoing = self._ongoing.get(what)
            if ongoing is None:
                self._ongoing[what] = _Ongoing(first=step, last=step)
                lines.append(f"step {step}: {alarm} (said once while it lasts)")
            else:
                ongoing.last, ongoing.count = step, ongoing.count + 1
        for what, ongoing in [*self._ongoing.items()]:
            if step - ongoing.last >= QUIET_STEPS:
                del self._ongoing[what]
                steps = ongoing.last - ongoing.first + 1
                lines.append(
                    f"step {step}: over since step {ongoing.last + 1}: {what.removeprefix('alarm: ')} (in "
                    f"{ongoing.count} of {steps} steps)"
                )
        return lines
