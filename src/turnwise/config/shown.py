"""What a report and experiment trackers show of a stored run's recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.config.load import dump_resolved, load_resolved
from turnwise.config.run import RunConfig
from turnwise.config.trackers import TrackersSection


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecipe:
    """A recipe for people: a few of its options, and all of them as plain data."""

    name: str
    seed: int
    model: str
    """Its path, or what is built from random weights."""
    environment: str
    steps: int
    """RL steps."""
    max_staleness: int
    mask_observations: bool
    examples: int
    """Pairs of trajectories that a report shows."""
    trackers: TrackersSection
    table: Mapping[str, Any]
    """Every option, section by section."""


def describe_recipe(config: RunConfig) -> ShownRecipe:
    """What is shown of a recipe."""
    return ShownRecipe(
        name=config.run.name,
        seed=config.run.seed,
        model=config.model.path or f"a {config.model.model_type} model from random weights",
        environment=config.environment.name,
        steps=config.train.steps,
        max_staleness=config.schedule.max_staleness,
        mask_observations=config.loss.mask_observations,
        examples=config.report.examples,
        trackers=config.trackers,
        table=dump_resolved(config),
    )


def read_shown(path: Path, overrides: Sequence[str] = ()) -> ShownRecipe:
    """What is shown of the recipe in a run folder's config.json. Raises ConfigError as `load_resolved` does."""
    return describe_recipe(load_resolved(path, overrides))
