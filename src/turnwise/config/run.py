"""The recipe as one tree of sections."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from turnwise.config.credit import CreditSection, CriticSection
from turnwise.config.engine import EngineSection
from turnwise.config.environment import EnvironmentSection
from turnwise.config.evaluate import EvaluateSection, ReportSection
from turnwise.config.judges import JudgeSection
from turnwise.config.learning import SftSection, TrainSection
from turnwise.config.loss import LossSection
from turnwise.config.model import ModelSection, RendererSection, TokenizerSection
from turnwise.config.rollout import RolloutSection
from turnwise.config.scale import ScaleSection
from turnwise.config.schedule import ScheduleSection
from turnwise.config.section import Section
from turnwise.config.selection import PreferenceSection, RejectionSection
from turnwise.config.trackers import TrackersSection


class RunSection(Section):
    """The run itself."""

    name: str = "run"
    """First part of the run folder's name; no path, `run.output` has that."""
    seed: int = Field(0, ge=0)
    """Seed from which everything random derives."""
    output: str = "runs"
    """Folder in which run folders are made."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not name.strip() or name.startswith(".") or any(sign in name for sign in "/\\\0\n*?["):
            raise ValueError("it must be a name for a folder, without slashes, *, ? and [; run.output says where")
        return name

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: str) -> str:
        if named := re.search(r"\$(?:\{\w+\}|[A-Za-z_]\w*)", output):
            raise ValueError(
                f"{named[0]} is not filled in here; write the folder, or give the option in the command, "
                f'"run.output={output}" in double quotes, where the shell fills it in'
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
    """Who plays a role of the environment, by role: "learns", the policy that is trained (also where a role is not
    named); "learns:NAME", a further policy with weights of its own; "follows" or "follows:NAME", the weights of a
    learner, never trained on what they say here; "past:latest", "past:uniform",
    "past:wins", a checkpoint of this run, drawn anew for each draw; "frozen:PATH", the checkpoint in a local directory;
    "scripted:NAME", a policy of the environment family; "api:URL#MODEL", a model behind an OpenAI-style API, whose key
    is read from OPENAI_API_KEY."""
    judges: dict[str, JudgeSection] = Field(default_factory=dict)
    """Judges that environments ask while they score, by name."""
    engine: EngineSection = EngineSection()
    rollout: RolloutSection = RolloutSection()
    schedule: ScheduleSection = ScheduleSection()
    scale: ScaleSection = ScaleSection()
    credit: CreditSection = CreditSection()
    critic: CriticSection = CriticSection()
    loss: LossSection = LossSection()
    sft: SftSection = SftSection()
    train: TrainSection = TrainSection()
    rejection: RejectionSection = RejectionSection()
    preference: PreferenceSection = PreferenceSection()
    evaluate: EvaluateSection = EvaluateSection()
    report: ReportSection = ReportSection()
    trackers: TrackersSection = TrackersSection()
