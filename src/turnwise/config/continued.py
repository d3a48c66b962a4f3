"""Which options may change when a run is continued, and what changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.config.load import change_resolved
from turnwise.config.options import list_options
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

CHANGEABLE = (
    *("train.steps", "train.checkpoint_every", "train.keep_checkpoints", "train.keep_best", "train.keep_every"),
    *("train.parity_every", "train.num_threads"),
    *("train.micro_batch_tokens", "train.recompute_activations", "train.offload_to_cpu"),
    *("engine.max_concurrency", "engine.num_threads"),
    *("rollout.num_workers", "rollout.max_open", "rollout.max_retries", "rollout.max_invalid_share"),
    *("rollout.trajectory_timeout_s", "evaluate.every", "evaluate.controls", "report", "trackers", "scale"),
    *("evaluate.num_workers", "evaluate.deadline_s", "train.patience", "train.patience_on"),
)
"""Options and sections that say how long a run goes on, how often it looks, what it keeps, where it is shown, and where
and how fast it computes. What was sampled and trained keeps its meaning under any values of them."""
MOVED = {"model.device": "--device", "train.ranks": "--ranks"}
"""Options that `turnwise train --resume` changes for one life of the run, by the flag for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One option of a run that gets another value."""

    option: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.option}: {self.before!r} -> {self.after!r}"


def change_options(
    config: RunConfig, overrides: Sequence[str] = (), *, changes: Mapping[str, Any] | None = None
) -> tuple[RunConfig, list[Change]]:
    """The recipe of a run that goes on with some options changed, and those that differ.

    Raises ConfigError naming the first option that may not change, or as `load_config` does.
    """
    changed = change_resolved(config, overrides, changes=changes)
    found = compare(config, changed)
    check_changes(found)
    return changed, found


def adopt_recipe(config: RunConfig, recipe: RunConfig, run: Path) -> tuple[RunConfig, list[Change]]:
    """The recipe `config` of `run`, with what `recipe`, by which it is to go on, says otherwise; and what that is, but
    for where it computes.

    Raises ConfigError naming the run and the first option that differs and may not change.
    """
    differ = [
        change
        for change in compare(config, recipe)
        # A folder may have moved; 0 leaves the tokens to the machine, which chose them when the run began.
        if change.option != "run.output" and (change.option, change.after) != ("train.micro_batch_tokens", 0)
    ]
    found = [change for change in differ if change.option not in MOVED]
    check_changes(found, why=f"{run} was made by another recipe", rest="change run.name to start a separate run")
    return change_resolved(config, changes={change.option: change.after for change in differ}), found


def compare(before: RunConfig, after: RunConfig) -> list[Change]:
    """Every option with another value."""
    values = dict(_list_values(before)), dict(_list_values(after))
    return [
        Change(option=option, before=value, after=values[1][option])
        for option, value in values[0].items()
        if value != values[1][option]
    ]


def check_changes(
    changes: Sequence[Change], *, why: str = "", rest: str = "start a new run to use another value"
) -> None:
    """Raise ConfigError naming the first option that may not change, and those that may."""
    for change in changes:
        if change.option in MOVED:
            raise ConfigError(f"{change} cannot be set when a run is continued; use {MOVED[change.option]} instead")
        if not any(f"{change.option}.".startswith(f"{allowed}.") for allowed in CHANGEABLE):
            reason = f"{why}: " if why else ""
            raise ConfigError(
                f"{reason}{change} cannot change when a run is continued; {rest} (these can: {', '.join(CHANGEABLE)})"
            )


def _list_values(config: RunConfig) -> Iterator[tuple[str, Any]]:
    table = config.model_dump(mode="json")
    for option in list_options(RunConfig):
        value: Any = table
        for name in option.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        yield option, value
