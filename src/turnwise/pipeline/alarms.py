"""Signs in a step's metrics that nothing is being learned."""

from __future__ import annotations

from collections.abc import Mapping


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
