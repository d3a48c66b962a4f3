"""Check whether credit from the stored rewards gives the stored advantages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.credit import StatefulCredit
from turnwise.audit.accounts import Advantages
from turnwise.audit.breaches import Breach, Tallies
from turnwise.audit.materials import AuditedCredit
from turnwise.config.rewards import TASK, RewardSection
from turnwise.core.errors import TrainingError
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup, TrajectoryId
from turnwise.credit.assignment import compute_advantages, pad_turns, to_credit_trajectories
from turnwise.credit.terms import weigh

NOT_STORED = {"values", "reference_logprobs", "implicit_rewards", "final_value", "squared_mass"}
"""Inputs of credit methods that the store does not keep."""


def check_advantages(
    step: int,
    groups: Sequence[TrajectoryGroup],
    advantages: Advantages | None,
    audited: AuditedCredit,
    tallies: Tallies,
) -> None:
    """Compare the stored advantages of a step with those recomputed from its groups, to float32 rounding.

    `groups` are those that the step trained, in order; their turns must form a tree in order of time. `advantages` are
    None if the step stored none.
    """
    tally = tallies["advantages"]
    tally.breaches += [
        Breach(check="advantages", step=step, trajectory=t.id, text=problem)
        for group in groups
        for t in group.trajectories
        if t.learns and isinstance(t.reward, Scored) and (problem := find_term_problem(t, t.reward, audited.rewards))
    ]
    reason = why_not_recomputable(audited)
    if reason is not None or audited.build is None:
        tallies.skip("advantages", reason or "", sum(len(group.trajectories) for group in groups))
        return
    if advantages is None:
        tally.breaches.append(Breach(check="advantages", step=step, text="the step stored no advantages"))
        return
    try:
        trajectories = to_credit_trajectories(groups, shaping=audited.shaping)
        computed = compute_advantages(audited.build(), groups, trajectories)
    except TrainingError as cause:
        text = f"credit cannot be computed from the stored rewards: {cause}"
        tally.breaches.append(Breach(check="advantages", step=step, text=text))
        return
    stored = {name: turns for name, turns in advantages.items() if turns is not None}
    recomputed: dict[TrajectoryId, Sequence[NDArray[Any] | None]] = {
        t.id: pad_turns(computed[t.id], t)
        for group in groups
        for t in group.trajectories
        if t.id in computed
        and (audited.train_truncated or not t.stop.is_truncated)
        and (not audited.train_members or t.id.member < audited.train_members)
    }
    for name in sorted(recomputed.keys() | stored.keys()):
        tally.checked += 1
        difference = _find_difference(stored.get(name), recomputed.get(name))
        if difference is not None:
            tally.breaches.append(Breach(check="advantages", step=step, trajectory=name, text=difference))


def find_term_problem(trajectory: Trajectory, reward: Scored, sections: Mapping[str, RewardSection]) -> str | None:
    """What is wrong with the stored terms of a reward: other names than in the recipe, a contribution that its weight
    and cap do not give, an environment's reward that is another; None if they agree."""
    names = [term.name for term in trajectory.terms]
    if names != list(sections):
        return f"its terms are {', '.join(names) or 'none'}, and the recipe's [rewards] {', '.join(sections) or 'none'}"
    for term in trajectory.terms:
        section = sections[term.name]
        expected = weigh(term.value, section.weight, section.cap)
        if not math.isclose(term.contribution, expected, rel_tol=1e-9, abs_tol=1e-12):
            return f"term {term.name!r} contributes {term.contribution:g}; its weight and cap give {expected:g}"
        if section.kind == TASK and term.value != reward.total:
            return f"term {term.name!r} has {term.value:g}, and the environment's reward is {reward.total:g}"
    return None


def _find_difference(
    stored: Sequence[NDArray[Any] | None] | None, recomputed: Sequence[NDArray[Any] | None] | None
) -> str | None:
    """The first turn whose advantages differ; None if all agree."""
    if stored is None or recomputed is None:
        return f"its advantages are {'recomputed but not stored' if stored is None else 'stored but not recomputed'}"
    if len(stored) != len(recomputed):
        return f"{len(stored)} turns have stored advantages, it has {len(recomputed)}"
    for number, (old, new) in enumerate(zip(stored, recomputed, strict=True)):
        if new is None and old is not None:
            return f"turn {number} never trains and yet has advantages"
        if new is None:
            continue
        if old is None or new.shape != old.shape or not np.allclose(new, old, rtol=1e-5, atol=1e-6):
            on_record = "none" if old is None else f"{old[:1]}"
            return f"turn {number}: stored {on_record}, recomputed {new[:1]} (first token)"
    return None


def why_not_recomputable(audited: AuditedCredit) -> str | None:
    """Why advantages do not follow from what is stored; None if they do."""
    if audited.build is None:
        return f"trajectories of train.algorithm={audited.algorithm!r}, which has no advantages"
    credit = audited.build()
    if audited.has_critic or set(credit.method.needs) & NOT_STORED:
        return f"trajectories credited by {audited.method!r}, which reads more than the store keeps"
    if isinstance(credit.function, StatefulCredit):
        return f"trajectories credited by {audited.method!r}, which remembers earlier steps"
    if audited.holds_scores:
        return "trajectories whose advantages hold scores of another model"
    return None
