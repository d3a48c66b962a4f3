"""The recipe as one tree of sections."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from turnwise.config.annotators import AnnotatorSection
from turnwise.config.card import CardSection
from turnwise.config.credit import CreditSection, CriticSection
from turnwise.config.curriculum import CurriculumSection
from turnwise.config.engine import EngineSection
from turnwise.config.environment import EnvironmentSection
from turnwise.config.evaluate import EvaluateSection, ReportSection
from turnwise.config.judges import JudgeSection
from turnwise.config.learning import SftSection, TrainSection
from turnwise.config.loss import LossSection
from turnwise.config.model import ModelSection, RendererSection, TokenizerSection
from turnwise.config.pretraining import CptSection
from turnwise.config.rewards import RewardSection
from turnwise.config.rollout import RolloutSection
from turnwise.config.scale import ScaleSection
from turnwise.config.schedule import ScheduleSection
from turnwise.config.section import Section
from turnwise.config.selection import PreferenceSection, RejectionSection
from turnwise.config.trackers import TrackersSection


class RunSection(Section):
    """The run itself."""

    name: str = "run"
    """Start of the run folder's name; not a path, which is `run.output`."""
    seed: int = Field(0, ge=0)
    """Seed from which everything random derives."""
    output: str = "runs"
    """Folder in which run folders are created."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not name.strip() or name.startswith(".") or any(sign in name for sign in "/\\\0\n*?["):
            raise ValueError(
                "it must be a folder name without slashes, *, ? and [; set the parent folder in run.output"
            )
        return name

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: str) -> str:
        if named := re.search(r"\$(?:\{\w+\}|[A-Za-z_]\w*)", output):
            raise ValueError(
                f"{named[0]} is not expanded here; write the folder out, or set the option on the command line in "
                f'double quotes, "run.output={output}", so that the shell expands it'
            )
        return output


class RunConfig(Section):
    """A recipe: what `turnwise train` reads."""

    run: RunSection = RunSection()
    model: ModelSection = ModelSection()
    tokenizer: TokenizerSection = TokenizerSection()
    renderer: RendererSection = RendererSection()
    environment: EnvironmentSection = EnvironmentSection()
    roles: dict[str, str] = Field(default_factory=dict)
    """Policy for each role of the environment: "learns", the policy that is trained (also for roles not listed);
    "learns:NAME", another policy with its own weights; "follows" or "follows:NAME", the weights of a learner, not
    trained on what they say here; "past:latest", "past:uniform", "past:wins", a checkpoint of this run, chosen again
    for each draw; "frozen:PATH", the checkpoint in a local directory; "scripted:NAME", a policy of the environment
    family; "api:URL#MODEL", a model behind an OpenAI-style API, whose key is read from OPENAI_API_KEY."""
    judges: dict[str, JudgeSection] = Field(default_factory=dict)
    """Judges that environments ask while they score, by name."""
    rewards: dict[str, RewardSection] = Field(default_factory=dict)
    """Terms of the reward that trains, by name: it is the sum of their values times their weights. Empty: the reward
    of the environment. Metrics and evaluations report the environment's."""
    annotators: dict[str, AnnotatorSection] = Field(default_factory=dict)
    """What is measured on finished trajectories for credit, by name, besides what `credit.method` asks for."""
    engine: EngineSection = EngineSection()
    rollout: RolloutSection = RolloutSection()
    curriculum: CurriculumSection = CurriculumSection()
    schedule: ScheduleSection = ScheduleSection()
    scale: ScaleSection = ScaleSection()
    credit: CreditSection = CreditSection()
    critic: CriticSection = CriticSection()
    loss: LossSection = LossSection()
    cpt: CptSection = CptSection()
    sft: SftSection = SftSection()
    train: TrainSection = TrainSection()
    rejection: RejectionSection = RejectionSection()
    preference: PreferenceSection = PreferenceSection()
    evaluate: EvaluateSection = EvaluateSection()
    card: CardSection = CardSection()
    report: ReportSection = ReportSection()
    trackers: TrackersSection = TrackersSection()
