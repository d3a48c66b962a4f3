"""What the pipeline reads of a recipe."""

from __future__ import annotations

from turnwise.building.resolved import Resolved
from turnwise.pipeline.loop import PipelineSettings
from turnwise.pipeline.steps import StepSettings


def read_step_settings(resolved: Resolved) -> StepSettings:
    """What the recipe says about one step."""
    config = resolved.config
    return StepSettings(
        roles=config.roles,
        max_staleness=config.schedule.max_staleness,
        max_times=resolved.algorithm.max_times(config.loss, config.rejection),
        observations_train=not config.loss.mask_observations,
    )


def read_pipeline_settings(resolved: Resolved) -> PipelineSettings:
    """What the recipe says about the way of its groups."""
    config = resolved.config
    return PipelineSettings(
        tasks_per_step=config.rollout.tasks_per_step,
        group_size=config.rollout.group_size,
        max_staleness=config.schedule.max_staleness,
        late=config.schedule.late,
        dynamic_sampling=config.rollout.dynamic_sampling,
        seed=config.run.seed,
    )
