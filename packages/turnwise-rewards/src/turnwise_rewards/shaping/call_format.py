"""Call format: places in replies that look like calls and cannot be read, and replies that neither call nor answer.

Invites silence where it is a penalty, as here, and idle calls where it is a bonus.
"""

from __future__ import annotations

from collections import Counter

from turnwise.core.types import TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise_rewards.shaping.measured import NoOptions, build_kind


def measure_call_format(group: TrajectoryGroup, index: int, options: NoOptions) -> RewardAccount:
    """Return minus the parse problems over problems and calls (`Message.tool_errors`, `Message.tool_calls`); 0 without
    either."""
    messages = [turn.message for turn in group.trajectories[index].turns]
    problems = Counter(error.kind for message in messages for error in message.tool_errors)
    num_calls = sum(len(message.tool_calls) for message in messages)
    if not problems:
        return RewardAccount(value=0.0, reason=f"0 of {num_calls} could not be read" if num_calls else "no calls")
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(problems.items()))
    total = problems.total() + num_calls
    return RewardAccount(
        value=-problems.total() / total,
        reason=f"{problems.total()} of {total} could not be read: {kinds}",
        change="without them",
        changed=0.0,
    )


CALL_FORMAT = build_kind(
    "call_format",
    "minus the share of calls that cannot be read",
    measure_call_format,
    formula="- problems / (problems + calls); 0 without either",
)
