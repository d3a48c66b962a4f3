"""A generative process reward model: a judge that writes for each step whether it is right (arXiv 2504.00891).

The judge may be trained on labelled steps (`write_rows`; the family `labels`, docs/judges.md), or be the policy itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError
from turnwise.core.judging import EpisodeJudges, Judge
from turnwise.core.messages import Message, text_message
from turnwise.core.types import Trajectory, TrajectoryGroup, Turn
from turnwise.credit.annotator_kind import AnnotatorKind, AnnotatorParts
from turnwise.questions.forms import criteria
from turnwise.questions.prompts import show_message
from turnwise_rewards.reward_models.labels import Labelled, check_one_conversation

CRITERION = "The last reply is right, given what stands before it."


class StepJudgeOptions(Section):
    """Options of the annotator `step_judge`."""

    judge: str
    """A name of the recipe's `[judges]`."""
    votes: int = Field(1, ge=1)
    """Questions per step; the score is the share of yes. Above 1 the judge needs a temperature."""
    window: int = Field(0, ge=0)
    """Number of messages before the reply that the judge reads; 0: all of them."""


def list_steps(prompt: Sequence[Message], trajectory: Trajectory, window: int = 0) -> list[tuple[Message, ...]]:
    """Return, per turn, the conversation up to its reply: what a judge of the step reads; of what stands before it the
    last `window` messages, 0 for all.

    Raises DataError for several conversations."""
    check_one_conversation(trajectory)
    before = list(prompt)
    steps = []
    for turn in trajectory.turns:
        steps.append((*before[-window:], _read_reply(turn)))
        before += [turn.message, *turn.observations]
    return steps


def _read_reply(turn: Turn) -> Message:
    return turn.message if turn.message.text or turn.message.tool_calls else text_message("assistant", "(nothing)")


def write_rows(
    groups: Sequence[TrajectoryGroup], labelled: Sequence[Labelled], *, window: int = 0
) -> list[dict[str, Any]]:
    """Labelled steps as rows of a file of labels for judges: right from a label of 0.5."""
    prompts = {group.task.id: group.task.prompt for group in groups}
    rows = []
    for each in labelled:
        steps = list_steps(prompts[each.trajectory.task_id], each.trajectory, window)
        for messages, label in zip(steps, each.labels, strict=True):
            if label is not None:
                said = [{"role": message.role, "content": show_message(message)} for message in messages]
                rows.append({"messages": said, "criteria": {CRITERION: 1}, "label": int(label >= 0.5)})
    return rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepJudge:
    """Implements `Annotator`: fills `process_score` with the share of votes that a step is right."""

    judges: Mapping[str, Judge]
    options: StepJudgeOptions

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the group with scores and with what the judge was asked. Raises RewardError where it gives no
        verdict: the group is then Invalid."""
        marked = [await self._mark(group.task.prompt, trajectory) for trajectory in group.trajectories]
        return replace(group, trajectories=tuple(marked))

    async def _mark(self, prompt: Sequence[Message], trajectory: Trajectory) -> Trajectory:
        asked, turns, options = EpisodeJudges(self.judges), [], self.options
        steps = list_steps(prompt, trajectory, options.window)
        for turn, messages in zip(trajectory.turns, steps, strict=True):
            verdicts = [
                await asked.ask(options.judge, messages, form=criteria({CRITERION: 1})) for _ in range(options.votes)
            ]
            share = sum(verdict.score for verdict in verdicts) / options.votes
            turns.append(replace(turn, scores=replace(turn.scores, process_score=share)))
        judgements = (*trajectory.judgements, *asked.judgements)
        return replace(trajectory, turns=tuple(turns), judgements=judgements)


def build_step_judge(parts: AnnotatorParts) -> StepJudge:
    """Build the annotator. Raises ConfigError if the recipe has no such judge."""
    options: StepJudgeOptions = parts.options
    if options.judge not in parts.judges:
        known = ", ".join(parts.judges) or "none"
        raise ConfigError(
            f"annotators.step_judge.options.judge={options.judge!r} is none of the recipe's judges ({known}); add "
            f"[judges.{options.judge}]"
        )
    return StepJudge(judges=parts.judges, options=options)


STEP_JUDGE = AnnotatorKind(name="step_judge", fills="process_score", options=StepJudgeOptions, build=build_step_judge)
