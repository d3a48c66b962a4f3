"""The row `grounding`: rewards trajectories of any environment for claims that their own tool results support."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import RewardError
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Invalid, Scored, Trajectory, TrajectoryGroup
from turnwise.credit.reward_kind import RewardKind
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise_rewards.grounding.judged import JudgedSupport, judge_report
from turnwise_rewards.grounding.ledger import Limits
from turnwise_rewards.grounding.passages import Passage, read_passages
from turnwise_rewards.grounding.reward import GroundingWeights, compute_grounding


class GroundingOptions(Section):
    """Options of the row `grounding`."""

    judge: str = "grader"
    """The judge of the recipe that says whether a passage supports a claim."""
    tools: list[str] = Field(default_factory=list)
    """Tools whose results are passages; none named: all. Name those that search and read, or the output of a program
    that the model wrote is a source."""
    gate: str = ""
    """Part of the environment's reward that must be 1 for claims to earn anything, such as "success"; "reward" is the
    total, "" no gate. Fabricated citations cost in any case."""
    expected: int = Field(3, ge=1, le=1000)
    """Number of supported claims that earns the whole reward; further ones earn nothing."""
    limits: Limits = Limits()
    """What of a report is read."""
    weights: GroundingWeights = GroundingWeights()
    """Weights of recall, precision and fabrication."""


class GroundingReward:
    """Implements `GroupReward`."""

    def __init__(self, options: GroundingOptions) -> None:
        self._options = options

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return the reward of every trajectory's ledger: the last reply's claims, the passages of its own calls.

        Invalid where the judge gives no verdict, and where the reward has no part of the gate's name."""
        support = JudgedSupport(judges, self._options.judge)
        question = "\n".join(message.text for message in group.task.prompt)
        return [await self._score_one(trajectory, support, question) for trajectory in group.trajectories]

    async def _score_one(self, trajectory: Trajectory, support: JudgedSupport, question: str) -> float | Invalid:
        chosen = self._options
        if isinstance(trajectory.reward, Invalid):
            return trajectory.reward
        is_open = _read_gate(trajectory.reward, chosen.gate)
        if isinstance(is_open, Invalid):
            return is_open
        report, passages = read_report(trajectory, chosen.tools)
        try:
            ledger = await judge_report(
                report, passages, support, expected=chosen.expected, question=question, limits=chosen.limits
            )
        except RewardError as error:
            return Invalid(reason=f"no ledger of {trajectory.id}: {error}", retryable=True)
        return compute_grounding(ledger, chosen.weights, is_open=is_open)


def read_report(trajectory: Trajectory, tools: Sequence[str] = ()) -> tuple[str, dict[str, Passage]]:
    """Return the report of a trajectory, the answer of the last reply on its first path, and the passages that calls of
    this path were answered with; "" if a limit ended it before there was an answer."""
    turns = [trajectory.turns[at] for at in (trajectory.branches() or [()])[0]]
    case = AnswerCase(replies=[turn.message for turn in turns], golds=(), stop=trajectory.stop)
    records = [record for turn in turns for record in turn.tool_records]
    return final_answer(case) or "", read_passages(records, tools)


def _read_gate(reward: Scored, gate: str) -> bool | Invalid:
    value = reward.total if gate == "reward" else reward.part(gate) if gate else 1.0
    if value is not None:
        return value == 1
    known = ", ".join(repr(part.name) for part in reward.parts) or "none"
    return Invalid(reason=f"options.gate={gate!r}: the reward has no such part; its parts are {known}", retryable=False)


GROUNDING = RewardKind(
    name="grounding",
    summary="claims of the last reply that passages of the episode support, by a judge",
    formula="(a + b P) R - c F; R supported claims over those expected, P over supported and bad ones, F fabricated",
    options=GroundingOptions,
    build=lambda parts: GroundingReward(parts.options),
)
