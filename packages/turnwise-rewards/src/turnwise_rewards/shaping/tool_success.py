"""Tool success: the share of calls that the tool answered.

Invites cheap calls: one that cannot fail, made instead of the one that the task needs. `credit.shaping.gate` closes it
where nothing was solved.
"""

from __future__ import annotations

from turnwise.core.types import TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise_rewards.shaping.measured import NoOptions, build_kind, count_of, list_numbers


def measure_tool_success(group: TrajectoryGroup, index: int, options: NoOptions) -> RewardAccount:
    """Return calls without an error over calls; 0 without calls, so that doing nothing is no success.

    A call that could not be read is not counted: `call_format` counts it.
    """
    records = [record for turn in group.trajectories[index].turns for record in turn.tool_records]
    failed = [number for number, record in enumerate(records, start=1) if record.error is not None]
    if not records:
        return RewardAccount(value=0.0, reason="no calls")
    found = f"{count_of(len(failed), len(records), 'call')} failed"
    if not failed:
        return RewardAccount(value=1.0, reason=found)
    return RewardAccount(
        value=1 - len(failed) / len(records),
        reason=f"{found}: {list_numbers(failed, 'call')}",
        change="without them",
        changed=float(len(failed) < len(records)),
    )


TOOL_SUCCESS = build_kind(
    "tool_success",
    "share of calls that the tool answered without an error",
    measure_tool_success,
    formula="calls without error / calls; 0 without calls",
)
