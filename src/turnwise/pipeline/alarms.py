"""Signs in a step's metrics that nothing is being learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

QUIET_STEPS = 10
"""Steps without an alarm after which it is over: one that comes and goes is one alarm, not a line every other step."""


def describe_alarms(values: Mapping[str, float | None]) -> list[str]:
    """What a person should hear about a step's recorded metrics; empty when all is well."""
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
    stepped = (values.get("train/grad_norm") or 0) > 0 and (values.get("train/lr") or 0) > 0
    if values.get("train/changed_tensors") == 0 and stepped:
        alarms.append(
            "alarm: the optimizer stepped and no weight changed; the learning rate is below the precision of the "
            "weights' dtype, or the optimizer holds other tensors than the model"
        )
    return alarms


@dataclass(slots=True)
class _Ongoing:
    first: int
    last: int
    count: int = 1


class AlarmWatch:
    """Tells of an alarm when it begins and when it is over, and nothing in between."""

    def __init__(self) -> None:
        self._ongoing: dict[str, _Ongoing] = {}

    def follow(self, step: int, alarms: Sequence[str]) -> list[str]:
        """What to say after `step`, whose alarms are given."""
        lines = []
        for alarm in alarms:
            ongoing = self._ongoing.get(alarm)
            if ongoing is None:
                self._ongoing[alarm] = _Ongoing(first=step, last=step)
                lines.append(f"step {step}: {alarm} (said once while it lasts)")
            else:
                ongoing.last, ongoing.count = step, ongoing.count + 1
        for alarm, ongoing in [*self._ongoing.items()]:
            if step - ongoing.last >= QUIET_STEPS:
                del self._ongoing[alarm]
                what = alarm.removeprefix("alarm: ").partition(";")[0]
                steps = ongoing.last - ongoing.first + 1
                lines.append(
                    f"step {step}: over since step {ongoing.last + 1}: {what} (in {ongoing.count} of {steps} steps)"
                )
        return lines
