"""The durations of the parts of a simulated system, in seconds, and how many of each part there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Placement = Literal["trajectory", "group", "turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCosts:
    """One engine. A step samples a token for each of its n sequences, which attend to R tokens together, and takes
    `step_s + sequence_s * n + attended_s * R`; it computes p tokens of context in `context_s * p`, and samples nothing
    meanwhile."""

    step_s: float
    sequence_s: float = 0.0
    attended_s: float = 0.0
    context_s: float = 0.0
    slots: int | None = None
    """Sequences sampled at once; others wait in order of arrival. None means no limit."""

    def __post_init__(self) -> None:
        if self.step_s <= 0 or min(self.sequence_s, self.attended_s, self.context_s) < 0:
            raise ValueError(f"{self}: step_s must be above 0, the other seconds at least 0")
        if self.slots is not None and self.slots < 1:
            raise ValueError(f"{self}: an engine needs at least 1 slot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """A whole system."""

    engine: EngineCosts
    num_engines: int = 1
    placement: Placement = "trajectory"
    """The unit that stays on one engine: a trajectory, all members of a group, or a single turn, which goes to the
    engine with the fewest members while the keys and values of its context follow it at no cost."""
    finish_s: float = 0.0
    """Seconds from the end of a group's last member to the group's admission: annotators and the disk."""
    train_s: float = 0.0
    """Seconds of every trainer step, whatever it trains."""
    train_token_s: float = 0.0
    """Seconds of a trainer step per token of the trajectories that train, context included."""
    publish_s: float = 0.0
    """Seconds from trained weights to engines that serve them; the engines sample nothing meanwhile."""
    after_step_s: float = 0.0
    """Seconds of the trainer after the publication, before it takes the next batch."""
    num_tools: int | None = None
    """Tool calls served at once; others wait. None means no limit."""
    num_judges: int | None = None
    """Trajectories scored at once after their end; others wait. None means no limit."""
    colocated: bool = False
    """Whether trainer and engines share their machines: nothing is sampled while the trainer works."""
