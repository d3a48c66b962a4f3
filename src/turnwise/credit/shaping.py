"""Shapes the environment's rewards for credit, as `credit.shaping` says."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.config.credit import ShapingSection
from turnwise.core.errors import ConfigError
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.rewards.gates import gate_group
from turnwise.rewards.length import compute_length_rewards, compute_overlong_penalty
from turnwise.rewards.otc import compute_otc_rewards
from turnwise.rewards.staged import compute_staged_reward


def compute_shaped_rewards(group: TrajectoryGroup, shaping: ShapingSection | None) -> list[float | None]:
    """Return the shaped rewards of a group's members, None for members that could not be scored.

    Stages come first, then the factor for few calls, the length reward, the overlong punishment and the gate. Members
    that could not be scored are left out of comparisons.

    Raises ConfigError naming the option if a reward lacks the part that it reads, if a stage's part is not between 0
    and 1, and if `few_calls` would multiply a negative reward.
    """
    if shaping is None:
        return group.credited_rewards()
    shaped = iter(_shape([t for t in group.trajectories if isinstance(t.reward, Scored)], shaping))
    return [next(shaped) if isinstance(t.reward, Scored) else None for t in group.trajectories]


def shape_baseline(group: TrajectoryGroup, shaping: ShapingSection | None) -> float | None:
    """Return the reward of the group's greedy baseline, shaped like the rewards compared with it; None without a
    baseline.

    The gate depends on the group alone. Raises ConfigError if shaping compares members, since the baseline is not a
    member.
    """
    baseline = group.baseline
    if baseline is None or not isinstance(baseline.reward, Scored):
        return None
    if shaping is None:
        return baseline.reward.total
    for option in ("few_calls", "length_weight"):
        if getattr(shaping, option):
            raise ConfigError(
                f"credit.shaping.{option} compares the members of a group, which a greedy baseline is not; use a "
                "credit method without one, or switch the option off"
            )
    return _shape([baseline], shaping.model_copy(update={"gate": ""}))[0]


def read_metric(group: TrajectoryGroup, name: str, key: str) -> list[float | None]:
    """Return the part `name` of every member's reward, or its total for "reward"; None for members that could not be
    scored.

    Raises ConfigError naming the option `key` and the parts that exist.
    """
    return [_read_part(t, name, key) if isinstance(t.reward, Scored) else None for t in group.trajectories]


def _shape(members: Sequence[Trajectory], shaping: ShapingSection) -> list[float]:
    """Return the shaped rewards of scored members."""
    rewards = [_compute_stages(each, shaping) for each in members]
    lengths = [each.num_sampled_tokens for each in members]
    if shaping.few_calls:
        for each, reward in zip(members, rewards, strict=True):
            if reward < 0:
                raise ConfigError(
                    "credit.shaping.few_calls multiplies rewards and needs them to be at least 0, but task "
                    f"{each.task_id} has {reward}; build them from parts between 0 and 1 with credit.shaping.stages"
                )
        num_calls = [each.num_tool_calls for each in members]
        rewards = compute_otc_rewards(rewards, num_calls, _read_right(members, shaping))
    if shaping.length_weight:
        extra = compute_length_rewards(lengths, _read_right(members, shaping))
        rewards = [reward + shaping.length_weight * more for reward, more in zip(rewards, extra, strict=True)]
    if shaping.max_tokens:
        limits = {"max_tokens": shaping.max_tokens, "buffer": shaping.buffer}
        rewards = [
            reward + compute_overlong_penalty(length, **limits) for reward, length in zip(rewards, lengths, strict=True)
        ]
    if shaping.gate:
        return gate_group(rewards, [_read_part(each, shaping.gate, "credit.shaping.gate") for each in members])
    return rewards


def _compute_stages(member: Trajectory, shaping: ShapingSection) -> float:
    """Return the member's reward, computed in stages if there are any."""
    scores = [_read_part(member, name, "credit.shaping.stages") for name in shaping.stages or ("reward",)]
    if not shaping.stages:
        return scores[0]
    for name, score in zip(shaping.stages, scores, strict=True):
        if not 0 <= score <= 1:
            raise ConfigError(
                f"credit.shaping.stages.{name}: the reward of task {member.task_id} has {name}={score}; a stage needs "
                "a part between 0 and 1"
            )
    stages = shaping.stages.values()
    return compute_staged_reward(scores, [each.weight for each in stages], [each.threshold for each in stages])


def _read_right(members: Sequence[Trajectory], shaping: ShapingSection) -> list[bool]:
    """Return whether each member's answer is right."""
    return [_read_part(each, shaping.success, "credit.shaping.success") >= 1 for each in members]


def _read_part(member: Trajectory, name: str, key: str) -> float:
    """Return the part of a scored member's reward, its term of this name, or the reward that trains for "reward"."""
    reward = member.reward
    assert isinstance(reward, Scored)
    terms = {term.name: term.contribution for term in member.terms}
    value = member.credited if name == "reward" else reward.part(name)
    if value is None:
        value = terms.get(name)
    if value is None:
        names = ", ".join([*(part.name for part in reward.parts), *terms]) or "none"
        raise ConfigError(f"{key}={name!r}: the reward of task {member.task_id} has no such part; its parts: {names}")
    return value
