"""What each part of a stored trajectory's reward gave, and what would have changed it; read without the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.audit.explain import find_trajectory
from turnwise.config.credit import ShapingSection
from turnwise.config.engine_kinds.kind import read_options
from turnwise.config.load import load_resolved
from turnwise.config.rewards import RewardSection
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.roles import split_roles
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise.credit.reward_table import find_reward
from turnwise.credit.shaping import compute_shaped_rewards
from turnwise.store.journal import read_journal
from turnwise.store.run_folder import CONFIG, RunFolder

TOLERANCE = 1e-9
"""Largest difference between a stored value and the same measured again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTerm:
    """What one entry of `[rewards]` gave."""

    name: str
    kind: str
    value: float
    weight: float
    cap: float | None
    contribution: float
    reason: str
    """What was found; why nothing can be said, if nothing can."""
    change: str = ""
    """What would have changed the value, such as "without them"; empty if nothing is known that would."""
    difference: float | None = None
    """What the change would have added to the contribution; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedReward:
    """The reward of one trajectory, from the environment to credit."""

    trajectory: str
    stop: str
    invalid: str
    """Why the reward is Invalid; empty if it is not."""
    total: float | None
    """The environment's own reward."""
    parts: Mapping[str, float]
    terms: Sequence[ExplainedTerm]
    credited: float | None
    """The sum of the terms; the environment's reward if there are none."""
    shaped: float | None
    """What `credit.shaping` made of it, which credit compares."""
    shaping: Sequence[str]
    """The options of `credit.shaping` that are on, as in the recipe."""
    group_credited: Sequence[float | None]
    group_shaped: Sequence[float | None]


def explain_rewards(run: Path, name: str) -> list[ExplainedReward]:
    """Explain the rewards of the trajectories named DRAW/MEMBER, one for each role.

    Raises StoreError and DataError as `find_trajectory`, ConfigError where the recipe's rewards lead nowhere.
    """
    folder = RunFolder.open(run)
    config = load_resolved(folder.path / CONFIG)
    group, found = find_trajectory(folder.path, read_journal(folder.path), name)
    return [
        explain_member(part, index, config.rewards, config.credit.shaping)
        for part in split_roles(group)
        for index, member in enumerate(part.trajectories)
        if member.id.member == found.id.member
    ]


def explain_member(
    group: TrajectoryGroup, index: int, rewards: Mapping[str, RewardSection], shaping: ShapingSection
) -> ExplainedReward:
    """Explain the reward of the member at an index of a group of one role, under a recipe's sections. Raises
    ConfigError as above."""
    member = group.trajectories[index]
    scored = member.reward if isinstance(member.reward, Scored) else None
    shaped = compute_shaped_rewards(group, shaping)
    return ExplainedReward(
        trajectory=str(member.id),
        stop=member.stop.value,
        invalid="" if scored else getattr(member.reward, "reason", ""),
        total=scored.total if scored else None,
        parts={part.name: part.value for part in scored.parts} if scored else {},
        terms=[_explain_term(group, index, term.name, rewards) for term in member.terms] if scored else [],
        credited=member.credited,
        shaped=shaped[index],
        shaping=list_shaping(shaping),
        group_credited=group.credited_rewards(),
        group_shaped=shaped,
    )


def list_shaping(shaping: ShapingSection) -> list[str]:
    """Return the options that differ from their defaults, as `name=value`."""
    plain = ShapingSection()
    changed = {name: getattr(shaping, name) for name in ShapingSection.model_fields}
    return [
        f"{name}={list(value) if name == 'stages' else value}"
        for name, value in changed.items()
        if value != getattr(plain, name)
    ]


def _explain_term(group: TrajectoryGroup, index: int, name: str, rewards: Mapping[str, RewardSection]) -> ExplainedTerm:
    member = group.trajectories[index]
    [term] = [term for term in member.terms if term.name == name]
    section = rewards.get(name)
    if section is None:
        raise ConfigError(f"trajectory {member.id} has a term {name!r}, which the run's recipe does not have")
    account = _ask_row(group, index, name, section, member)
    difference = None
    if account.changed is not None and account.change:
        difference = _contribute(section, account.changed) - term.contribution
    reason = account.reason
    if abs(account.value - term.value) > TOLERANCE:
        reason = f"stored {term.value:g}, but measured again it is {account.value:g}: {reason}"
    return ExplainedTerm(
        name=name,
        kind=section.kind,
        value=term.value,
        weight=section.weight,
        cap=section.cap,
        contribution=term.contribution,
        reason=reason,
        change=account.change if difference is not None else "",
        difference=difference,
    )


def _ask_row(
    group: TrajectoryGroup, index: int, name: str, section: RewardSection, member: Trajectory
) -> RewardAccount:
    """The row's account, or the stored value with the reason why there is none."""
    [value] = [term.value for term in member.terms if term.name == name]
    if section.kind == "task":
        return RewardAccount(value=value, reason="the environment's own reward")
    row = find_reward(name, section)
    if row.explain is None:
        return RewardAccount(value=value, reason=f"{section.kind} does not account for its values")
    options = section.options
    where = f"rewards.{name}"
    checked = read_options(section.kind, row.options, options, where=where) if row.options else options
    with boundary(ConfigError, f"{where}.kind={section.kind!r} cannot account for trajectory {member.id}"):
        return row.explain(group, index, checked)


def _contribute(section: RewardSection, value: float) -> float:
    """The weighted value within the cap."""
    contribution = section.weight * value
    return contribution if section.cap is None else min(max(contribution, -section.cap), section.cap)
