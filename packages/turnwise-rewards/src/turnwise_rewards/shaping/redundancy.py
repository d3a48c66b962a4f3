"""Redundancy: repeated equal calls that brought nothing new.

Invites silence, as no call repeats another, and empty variation: the same question in other words.
"""

from __future__ import annotations

import json

from turnwise.core.types import ToolCall, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise_rewards.shaping.measured import NoOptions, build_kind, count_of, list_numbers


def measure_redundancy(group: TrajectoryGroup, index: int, options: NoOptions) -> RewardAccount:
    """Return minus the share of calls that repeat an earlier one: the same tool with the same arguments, answered with
    the same text and pictures. Asking again for what has changed since is no repetition. 0 without calls."""
    records = [record for turn in group.trajectories[index].turns for record in turn.tool_records]
    seen: set[tuple[str, str, str]] = set()
    repeated: list[int] = []
    for number, record in enumerate(records, start=1):
        key = (record.call.name, spell_arguments(record.call), record.shown)
        if key in seen:
            repeated.append(number)
        seen.add(key)
    if not repeated:
        return RewardAccount(value=0.0, reason="no call repeats another" if records else "no calls")
    return RewardAccount(
        value=-len(repeated) / len(records),
        reason=f"{count_of(len(repeated), len(records), 'call')} repeated: {list_numbers(repeated, 'call')}",
        change="without them",
        changed=0.0,
    )


def spell_arguments(call: ToolCall) -> str:
    """Return the arguments in a spelling that equal ones share: JSON objects by sorted keys, any text by its words."""
    try:
        read = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return " ".join(call.arguments.split())
    if not isinstance(read, dict):
        return " ".join(call.arguments.split())
    words = {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in read.items()}
    return json.dumps(words, sort_keys=True)


REDUNDANCY = build_kind(
    "redundancy",
    "minus the share of calls that repeat an earlier one",
    measure_redundancy,
    formula="- repeated calls / calls; 0 without calls",
)
