"""One row of the table of algorithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from turnwise.config.loss import LossSection
from turnwise.config.selection import RejectionSection

CountPasses = Callable[[LossSection, RejectionSection], int]
"""How often a step goes through its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One row of the table of algorithms: all that the library knows about one besides its learner."""

    name: str
    has_credit: bool = False
    """Whether it learns by `credit`, `critic` and `loss`; the others have a loss of their own and no advantages."""
    needs_reference: bool = False
    """Whether its loss reads the policy that RL started from, whatever `loss.kl` says."""
    pairs: Literal["none", "attempts", "steps"] = "none"
    """What it compares in pairs of a group's members: whole attempts, or the steps at which they diverge."""
    count_passes: CountPasses
    """How often a step goes through its batch, each time in `loss.updates_per_step` optimizer steps."""
    passes_option: str = ""
    """The option that says so; empty where it is once."""

    @property
    def has_pairs(self) -> bool:
        """Whether it learns from pairs."""
        return self.pairs != "none"

    def steps_per_batch(self, loss: LossSection, rejection: RejectionSection) -> int:
        """Optimizer steps of one RL step."""
        return loss.updates_per_step * self.count_passes(loss, rejection)

    def max_times(self, loss: LossSection, rejection: RejectionSection) -> int | None:
        """How often a token may train in a step: once per pass; None where any number of pairs may have it."""
        return None if self.has_pairs else self.count_passes(loss, rejection)
