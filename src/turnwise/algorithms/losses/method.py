"""A row of the table of policy losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from turnwise.algorithms.aggregate import Aggregation
from turnwise.algorithms.losses.inputs import LossFunction, LossOutput

OptionValue = float | int | str
Anchor = Literal["old", "behavior", "both", "none"]
Stale = Literal["decoupled", "sequence", "ratio", "proximal", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMethod:
    """One row of the table of policy losses, placed below the function that it describes."""

    name: str
    aliases: tuple[str, ...] = ()
    """Other names a recipe may use, spelled as in the papers."""
    summary: str
    formula: str
    """Formula per token, to be minimised. `u = policy / old`, `s` its geometric mean over the sequence, `mu` the
    behavior, `sg` stop-gradient."""
    paper: str
    defaults: Mapping[str, OptionValue]
    level: Literal["token", "sequence"]
    """Whether a token's loss depends on that token alone or on its whole sequence."""
    default_aggregation: Aggregation
    anchor: Anchor
    """Which log-probabilities besides the policy's are read: they must exist, and they determine which corrections make
    sense."""
    stale: Stale = "refuse"
    """How it is corrected if older weights sampled the tokens (`building/correction.py`). "decoupled": ratios to
    recomputed old log-probabilities, losses times truncated token weights old / behavior (arXiv 2505.24298).
    "sequence": the same with the geometric mean over the sequence. "ratio": its own ratio to the behavior policy is the
    correction. "proximal": it applies old / behavior itself. "refuse": it cannot be corrected."""
    function: Callable[..., LossOutput]
    batch_rule: bool = False
    """Whether it ranks tokens against each other: without `LossInputs.selected` from the whole step's batch, the result
    depends on the split into micro-batches."""

    def build(self, **options: OptionValue) -> LossFunction:
        """Build the loss with its defaults and these options; nothing is checked (`build_loss` checks)."""
        return partial(self.function, **{**self.defaults, **options})
