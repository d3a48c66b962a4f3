"""A reward model in a run: its scores of every turn for credit, its score of the whole as a term of the reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError
from turnwise.core.judging import EpisodeJudges
from turnwise.core.threads import OwnThread
from turnwise.core.types import Invalid, Trajectory, TrajectoryGroup
from turnwise.credit.annotator_kind import AnnotatorKind, AnnotatorParts
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise.models.build import choose_device
from turnwise_rewards.reward_models.folder import load_reward_model
from turnwise_rewards.reward_models.model import RewardModel, score_turns
from turnwise_rewards.reward_models.selection import Fold, fold_scores


class ReaderOptions(Section):
    """Options of what reads a reward model in a run."""

    path: str
    """Folder that `turnwise reward-model train` wrote."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model scores."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Most tokens of one forward pass."""


class RewardOptions(ReaderOptions):
    """Options of the reward."""

    fold: Fold = "last"
    """From the scores of turns to that of the attempt: "last", "min" or "prod". An outcome model has only the last."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessAnnotator:
    """Implements `Annotator`: fills `process_score` and `potential` of every turn."""

    model: RewardModel
    thread: OwnThread
    """Scores one group at a time, beside the event loop."""

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the group with the model's probability of success after each turn as its `process_score`, and that
        before the turn as its `potential`.

        The potential before the first turn is 0: it is the same for all attempts at a task, and cancels where they are
        compared. Raises DataError for a score that is not finite, and for several conversations."""
        scores = await self.thread.run(lambda: score_turns(self.model, group.trajectories))
        marked = [_mark(trajectory, row) for trajectory, row in zip(group.trajectories, scores, strict=True)]
        return replace(group, trajectories=tuple(marked))


def _mark(trajectory: Trajectory, scores: Sequence[float]) -> Trajectory:
    before = [0.0, *scores][: len(scores)]
    turns = [
        replace(turn, scores=replace(turn.scores, process_score=after, potential=earlier))
        for turn, earlier, after in zip(trajectory.turns, before, scores, strict=True)
    ]
    return replace(trajectory, turns=tuple(turns))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelReward:
    """Implements `GroupReward`: a reward model's score of each attempt."""

    model: RewardModel
    fold: Fold
    thread: OwnThread

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return probabilities of success; 0 for an attempt without replies. Raises as `score_turns` does."""
        scores = await self.thread.run(lambda: score_turns(self.model, group.trajectories))
        return [fold_scores(row, self.fold) for row in scores]


def build_annotator(parts: AnnotatorParts) -> ProcessAnnotator:
    """Build the annotator. Raises ConfigError for a folder that is no process reward model of this run's tokens."""
    model = _load(parts, "annotators.reward_model.options.path")
    if model.kind != "process":
        raise ConfigError(
            f"{model.name} is an outcome model, which knows nothing of turns before the last; train one with labels "
            "'soft', 'hard' or 'returns', or use it in [rewards]"
        )
    return ProcessAnnotator(model=model, thread=OwnThread())


def build_reward(parts: RewardParts) -> ModelReward:
    """Build the reward. Raises ConfigError for a folder that is no reward model of this run's tokens, and for a fold
    that an outcome model has not."""
    model = _load(parts, f"rewards.{parts.name}.options.path")
    if model.kind == "outcome" and parts.options.fold != "last":
        raise ConfigError(
            f"rewards.{parts.name}.options.fold={parts.options.fold!r}, but {model.name} is an outcome model, which "
            "knows nothing of turns before the last; use fold='last'"
        )
    return ModelReward(model=model, fold=parts.options.fold, thread=OwnThread())


def _load(parts: AnnotatorParts | RewardParts, source: str) -> RewardModel:
    options: ReaderOptions = parts.options
    if parts.tokenizer is None:
        raise ConfigError(f"{source}={options.path!r}: a reward model reads tokens, and scripted attempts have none")
    return load_reward_model(
        options.path,
        parts.tokenizer,
        source=source,
        device=choose_device(options.device),
        micro_batch_tokens=options.micro_batch_tokens,
    )


REWARD_MODEL = AnnotatorKind(name="reward_model", fills="process_score", options=ReaderOptions, build=build_annotator)
MODEL_REWARD = RewardKind(
    name="reward_model",
    summary="a trained reward model's probability of success",
    formula="sigma(h(x)) after the last turn, or the least or the product over turns",
    paper="2110.14168",
    options=RewardOptions,
    build=build_reward,
)
