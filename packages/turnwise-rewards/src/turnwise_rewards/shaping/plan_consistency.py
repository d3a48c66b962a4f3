"""Plan consistency: whether the calls are those that the agent declared before it began.

    <plan> search author ; search birthplace </plan>

Invites plans that are easy to keep: one call, or the same call for every task. `credit.shaping.gate` closes it where
nothing was solved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.types import ToolCall, Trajectory, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise_rewards.shaping.measured import build_kind
from turnwise_rewards.shaping.words import find_words

A = TypeVar("A")
B = TypeVar("B")


class PlanOptions(Section):
    """Options of the part `plan_consistency`."""

    tag: str = Field("plan", pattern=r"^\w+$")
    """The plan stands between `<tag>` and `</tag>`."""


def measure_plan_consistency(group: TrajectoryGroup, index: int, options: PlanOptions) -> RewardAccount:
    """Return the longest common subsequence of plan and calls over the longer of the two; 0 without a plan, with an
    empty one, and without calls.

    An item of the plan is a tool's name and words that the call's arguments must contain (`matches`). Only a plan
    before or in the first reply that calls counts, the first one if there are several: what is declared later has been
    done already.
    """
    member = group.trajectories[index]
    plan = read_plan(member, options.tag)
    calls = [record.call for turn in member.turns for record in turn.tool_records]
    if not plan:
        return RewardAccount(value=0.0, reason="no plan" if plan is None else "an empty plan")
    if not calls:
        return RewardAccount(value=0.0, reason=f"{len(plan)} planned, no calls")
    common = find_longest_common(plan, calls, matches)
    return RewardAccount(
        value=common / max(len(plan), len(calls)),
        reason=f"{common} of {len(plan)} planned calls in {len(calls)} made, in order",
        change="if the calls were the plan's" if common < max(len(plan), len(calls)) else "",
        changed=1.0 if common < max(len(plan), len(calls)) else None,
    )


def read_plan(trajectory: Trajectory, tag: str) -> list[str] | None:
    """Return the items of the first plan declared up to the first call, split at `;` and line ends; None if there is
    none. Thoughts count: a plan is one."""
    pattern = re.compile(rf"<{tag}>(.*?)</{tag}>", re.DOTALL)
    for turn in trajectory.turns:
        if found := pattern.search(f"{turn.message.reasoning or ''}\n{turn.message.text}"):
            return [item for item in re.split(r"[;\n]", found[1]) if item.strip()]
        if turn.tool_records:
            return None
    return None


def matches(item: str, call: ToolCall) -> bool:
    """Whether a call is what an item declares: its first word is the tool's name, and its other words are among those
    of the arguments."""
    name, *rest = item.split()
    return name == call.name and find_words(" ".join(rest)) <= find_words(call.arguments)


def find_longest_common(first: Sequence[A], second: Sequence[B], equal: Callable[[A, B], bool]) -> int:
    """Return the length of the longest common subsequence of two sequences of lengths n and m, in O(n m)."""
    row = [0] * (len(second) + 1)
    for left in first:
        before = row
        row = [0]
        for at, right in enumerate(second):
            row.append(before[at] + 1 if equal(left, right) else max(before[at + 1], row[at]))
    return row[-1]


PLAN_CONSISTENCY = build_kind(
    "plan_consistency",
    "whether the calls follow the plan that was declared before them",
    measure_plan_consistency,
    formula="LCS(plan, calls) / max(planned, made); 0 without a plan or calls",
    options=PlanOptions,
)
