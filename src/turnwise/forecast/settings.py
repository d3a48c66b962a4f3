"""What predictions read of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.config.engine import EngineSection
from turnwise.config.engine_kinds.kind import EngineKind
from turnwise.config.learning import TrainSection
from turnwise.config.loss import LossSection
from turnwise.config.model import ModelSection
from turnwise.config.rollout import RolloutSection
from turnwise.forecast.copies import Copies


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSettings:
    """What memory and time of a recipe depend on."""

    model: ModelSection
    vocab_size: int
    """Of the tokenizer, where it is trained."""
    copies: Copies
    """The models that the run holds besides the policy."""
    engine: EngineSection
    engine_kind: EngineKind
    """The row that `engine` names."""
    rollout: RolloutSection
    branches_per_attempt: int
    """Most branches that credit samples from one attempt."""
    train: TrainSection
    loss: LossSection
    has_credit: bool
    """Whether the algorithm trains with `loss`."""
    num_demonstrations: int
    """Demonstrations that the environment writes for the warm-up."""
    document_tokens: int = 0
    """Most tokens that continual pre-training trains."""
    longest_document: int = 0
    """Most tokens of a sequence of documents; 0 without such a phase."""
