"""The result of a simulated schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """One trainer step."""

    ended_s: float
    """Time when engines served its weights, from the start."""
    ages: tuple[int, ...]
    """Per group, the number of versions between the weights that trained it and those it started under."""
    trajectories: int
    tokens: int
    """Sampled tokens that trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A whole simulated run."""

    seconds: float
    """Seconds until the last publication."""
    steps: tuple[SimulatedStep, ...]
    engine: Mapping[str, float]
    """Seconds by state, over all engines (see `SimulatedEngine.occupancy`)."""
    trainer: Mapping[str, float]
    """Seconds by state: "training", "publishing", "after step"; idle: "unfinished" if too few groups have finished, and
    "deadline" if a late group must train first."""
    sampled_tokens: int
    """All sampled tokens, including those of cut and dropped members."""
    num_replies: int
    engine_s: float
    """Seconds of replies from submission to end, summed."""
    dropped_groups: int
    cut_members: int

    @property
    def trajectories(self) -> int:
        """Number of trajectories that trained."""
        return sum(step.trajectories for step in self.steps)

    @property
    def trajectories_per_s(self) -> float:
        """Trained trajectories per second over the whole run, including its fill and drain."""
        return self.trajectories / self.seconds

    @property
    def mean_age(self) -> float:
        """Mean age over groups."""
        ages = [age for step in self.steps for age in step.ages]
        return sum(ages) / len(ages) if ages else 0.0

    @property
    def max_age(self) -> int:
        """Maximum age over groups."""
        return max((age for step in self.steps for age in step.ages), default=0)

    def steady_rate(self, leave_out: int) -> float:
        """Trajectories per second from the end of step `leave_out` to the end of the step `leave_out` before the last.

        Raises ValueError if no step is left."""
        steps = self.steps[leave_out : len(self.steps) - leave_out]
        if leave_out < 1 or not steps:
            raise ValueError(
                f"leaving out {leave_out} at either end leaves none of {len(self.steps)} steps; simulate more"
            )
        return sum(step.trajectories for step in steps) / (steps[-1].ended_s - self.steps[leave_out - 1].ended_s)

    def share(self, states: Mapping[str, float], name: str) -> float:
        """The share of all time spent in the state `name`, of `engine` or `trainer`."""
        return states.get(name, 0.0) / sum(states.values())
