"""The material that an audit needs besides the run folder: the recipe's settings, and the objects it describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.audit.documents import AuditedDocuments
from turnwise.config.credit import ShapingSection
from turnwise.config.rewards import RewardSection
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.types import Sample
from turnwise.curriculum.curriculum import Curriculum
from turnwise.store.data_files import FileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedCredit:
    """How a run got its advantages."""

    method: str
    """Name of the method, as in the recipe."""
    build: Callable[[], CheckedCredit] | None = None
    """Builds the credit method as it was at the start of the run; None if the algorithm has none."""
    algorithm: str = "policy_gradient"
    shaping: ShapingSection = field(default_factory=ShapingSection)
    rewards: Mapping[str, RewardSection] = field(default_factory=dict)
    """Terms of the reward that trains, by name."""
    train_truncated: bool = True
    train_members: int = 0
    has_critic: bool = False
    holds_scores: bool = False
    """Whether advantages depend on another model, a reference or a teacher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """The recipe's settings about what is stored."""

    seed: int
    dtype: Literal["float32", "float64", "bfloat16", "float16"]
    """Number format of the weights."""
    roles: Mapping[str, str]
    """The speaker of each role (`config.roles`)."""
    group_size: int
    trajectory_timeout_s: float
    checkpoint_every: int
    epochs: int
    """Passes that a step makes over its batch."""
    credit: AuditedCredit


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditMaterials:
    """The recipe's settings and its objects."""

    settings: AuditSettings
    family: EnvironmentFamily
    pictures: Pictures
    """The pictures of the run; nothing is added to them."""
    renderer: Renderer | None
    """The run's renderer; None without a tokenizer: the run has no checkpoint."""
    score: Callable[[Path, Sequence[Sample]], Sequence[NDArray[Any]]]
    """Log-probabilities of trained tokens at the recipe's temperature under the weights of a checkpoint folder, `[K_i]`
    per sample."""
    score_exact: Callable[[Path, Sequence[Sample]], Sequence[NDArray[Any]]]
    """The same with the weights in float32; called only if a half-precision model is above the bound of its dtype."""
    sum_weights: Callable[[Path], Mapping[str, int]]
    """One checksum per parameter tensor of the learners in a checkpoint folder, as the journal records them after a
    step."""
    num_started: int
    """Members started per group: the group size plus over-drawn members."""
    max_staleness: int
    """Maximum number of versions by which a trained token may be older than the weights."""
    cuts_late: bool
    """Whether a group may train without members that came late."""
    documents: AuditedDocuments | None = None
    """The documents of continual pre-training; None for a recipe without it."""
    build_curriculum: Callable[[], Curriculum | None] = lambda: None
    """Builds the curriculum as it was at the start of the run; it returns None if tasks were drawn in order."""
    first_task: int = 0
    """Index of the first task of the training split that RL may draw."""
    data_files: Sequence[FileRecord] = ()
    """The files that its tasks come from, in their present state."""
