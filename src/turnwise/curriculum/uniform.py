"""Every kind of task equally often, however rare it is in the split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.curriculum.choosing import choose_new, draw_even, list_drawable
from turnwise.curriculum.sampler import Choice, NoOptions, OfferedTasks, SamplerKind, TaskResult


class UniformSampler:
    """Implements `Sampler`: a kind with equal chances, then its next task."""

    def choose(self, offered: OfferedTasks, luck: Sequence[float]) -> Choice | None:
        """See `Sampler`."""
        kind = draw_even(list_drawable(offered), luck[0])
        return None if kind is None else choose_new(offered, luck[1], kind=kind, pool=kind or "all")

    def observe(self, results: Sequence[TaskResult], step: int) -> None:
        """Results change nothing."""

    def measure(self) -> Mapping[str, float]:
        """There is nothing to measure."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """There is no state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is no state."""


def build_uniform(options: NoOptions) -> UniformSampler:
    """Build the sampler."""
    return UniformSampler()


UNIFORM = SamplerKind(
    name="uniform",
    summary="every kind equally often, its tasks in order",
    formula="P(kind) = 1 / number of kinds",
    build=build_uniform,
)
