"""The sampler that a recipe asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.config.run import RunConfig
from turnwise.core.roles import learns, split_roles
from turnwise.core.types import TrajectoryGroup
from turnwise.credit.shaping import read_metric
from turnwise.curriculum.curriculum import Curriculum
from turnwise.curriculum.table import build_sampler


def build_curriculum(config: RunConfig) -> Curriculum | None:
    """Build the curriculum of a recipe; None where tasks are drawn in the order of the split. Raises ConfigError, with
    the remedy, for a sampler or option that does not exist."""
    sampler = build_sampler(config.curriculum.sampler, config.curriculum.options)
    if sampler is None:
        return None
    return Curriculum(
        sampler,
        name=config.curriculum.sampler,
        seed=config.run.seed,
        by=config.curriculum.by,
        read_rewards=_read_rewards(config.curriculum.metric, counts_truncated=config.rollout.train_truncated),
    )


def _read_rewards(metric: str, *, counts_truncated: bool) -> Callable[[TrajectoryGroup], Sequence[float]]:
    """Return a function that reads what the attempts of the learning roles earned. What could not be scored is left
    out, and so is what a limit cut off, where it does not train either."""

    def read(group: TrajectoryGroup) -> list[float]:
        values: list[float] = []
        for part in split_roles(group):
            if learns(part):
                scores = zip(part.trajectories, read_metric(part, metric, "curriculum.metric"), strict=True)
                counted = (score for member, score in scores if counts_truncated or not member.stop.is_truncated)
                values += [score for score in counted if score is not None]
        return values

    return read
