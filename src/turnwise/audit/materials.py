"""What an audit needs besides the run folder: the objects that the recipe describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from turnwise.config.run import RunConfig
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.types import Sample
from turnwise.store.data_files import FileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditMaterials:
    """The recipe and its objects."""

    config: RunConfig
    family: EnvironmentFamily
    renderer: Renderer | None
    """None where there is no tokenizer: the run has no checkpoint."""
    score: Callable[[Path, Sequence[Sample]], Sequence[NDArray[Any]]]
    """Log-probabilities of trained tokens at the recipe's temperature under the weights of a checkpoint folder, `[K_i]`
    per sample."""
    score_exact: Callable[[Path, Sequence[Sample]], Sequence[NDArray[Any]]]
    """The same with the weights in float32; asked only where a half-precision model is above the bound of its dtype."""
    sum_weights: Callable[[Path], Mapping[str, int]]
    """One checksum per parameter tensor of the learners in a checkpoint folder, as the journal has them after a
    step."""
    num_started: int
    """Members started per group: the group size and those that are over-drawn."""
    max_staleness: int
    """How many versions older than the weights a trained token may be."""
    cuts_late: bool
    """Whether a group may train without members that came late."""
    data_files: Sequence[FileRecord] = ()
    """The files that its tasks come from, as they are now."""
