"""The whole recipe as one tree."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.engine import EngineSection
from turnwise.config.environment import EnvironmentSection
from turnwise.config.evaluate import EvaluateSection, ReportSection
from turnwise.config.learning import CreditSection, LossSection, SftSection, TrainSection
from turnwise.config.model import ModelSection, RendererSection, TokenizerSection
from turnwise.config.rollout import RolloutSection
from turnwise.config.section import Section


class RunSection(Section):
    """The run itself."""

    name: str = "run"
    """Start of the run folder's name."""
    seed: int = Field(0, ge=0)
    """Everything random derives from it."""
    output: str = "runs"
    """Where run folders are made."""


class RunConfig(Section):
    """A recipe: what `turnwise train` reads."""

    run: RunSection = Field(default_factory=RunSection)
    model: ModelSection = Field(default_factory=ModelSection)
    tokenizer: TokenizerSection = Field(default_factory=TokenizerSection)
    renderer: RendererSection = Field(default_factory=RendererSection)
    environment: EnvironmentSection = Field(default_factory=EnvironmentSection)
    engine: EngineSection = Field(default_factory=EngineSection)
    rollout: RolloutSection = Field(default_factory=RolloutSection)
    credit: CreditSection = Field(default_factory=CreditSection)
    loss: LossSection = Field(default_factory=LossSection)
    sft: SftSection = Field(default_factory=SftSection)
    train: TrainSection = Field(default_factory=TrainSection)
    evaluate: EvaluateSection = Field(default_factory=EvaluateSection)
    report: ReportSection = Field(default_factory=ReportSection)
