"""The schedule of a recipe: what the gate admits, and what a simulation of it is told."""

from __future__ import annotations

from turnwise.config.run import RunConfig
from turnwise.forecast.simulation.system import Schedule
from turnwise.rollout.gate import AdmissionRule


def build_rule(config: RunConfig) -> AdmissionRule:
    """The recipe's admission rule."""
    schedule, batch_groups = config.schedule, config.rollout.tasks_per_step
    return AdmissionRule(
        batch_groups=batch_groups,
        max_staleness=schedule.max_staleness,
        max_open_groups=schedule.max_open_groups or (schedule.max_staleness + 1) * batch_groups,
        late=schedule.late,
        patience_s=schedule.patience_s,
        min_members=schedule.min_members,
    )


def read_schedule(config: RunConfig) -> Schedule:
    """The schedule of a recipe, to be simulated."""
    return Schedule(
        rule=build_rule(config),
        group_size=config.rollout.group_size,
        overdraw=config.schedule.overdraw,
        max_open=config.rollout.max_open or config.engine.max_concurrency,
    )
