"""Whether a recipe asks for more processes than the machine has cores."""

from __future__ import annotations

from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.run import RunConfig


def describe_crowding(config: RunConfig, *, cores: int, device: str) -> list[str]:
    """One line for each option that asks for more processes of arithmetic than there are cores, as a number meant for
    another machine does; they wait for each other, and a start may take minutes. Nodes of a cluster, and GPUs, have
    cores of their own."""
    if config.scale.ray:
        return []
    footprint = find_engine_kind(config.engine.kind).predict(config.engine.options)
    asked = {
        "train.ranks": config.train.ranks if device == "cpu" else 1,
        "engine.options.num_workers": max(footprint.num_workers, footprint.num_guests) if device == "cpu" else 1,
        "rollout.num_workers": config.rollout.num_workers,
    }
    return [
        f"{option}={count} on {cores} {'core' if cores == 1 else 'cores'}: the processes take turns, which is slower "
        f"than {option}={cores}"
        for option, count in asked.items()
        if count > cores
    ]
