"""Calibration: a scoring rule for the confidence that the last reply states.

Invites a constant: where tasks differ little, one confidence for all of them earns nearly as much, and its calibration
error is 0. A linear rule invites certainty. Where the rule is proper, nothing pays more than the truth.
"""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise_rewards.shaping.confidence import Rule, compute_score, read_confidence
from turnwise_rewards.shaping.measured import build_kind


class CalibrationOptions(Section):
    """Options of the part `calibration`."""

    rule: Rule = "brier"
    """Scoring rule: brier and log are proper; abstain is proper about one threshold; linear is not proper."""
    tag: str = Field("confidence", pattern=r"^\w+$")
    """The confidence stands between `<tag>` and `</tag>` in the last reply."""
    scale: float = Field(1.0, gt=0)
    """Number that means certainty: 10 for confidences from 0 to 10."""
    success: str = "success"
    """Part of the environment's reward that is 1 for a right answer."""
    floor: float = Field(0.01, gt=0, lt=0.5)
    """log: probability below which the score falls no further."""
    threshold: float = Field(0.5, ge=0, lt=1)
    """abstain: a reply that is at most this sure does not answer."""
    right_weight: float = Field(0.0, ge=0)
    """Added for a right answer whose confidence can be read."""
    format_weight: float = Field(0.0, ge=0)
    """Added for any answer whose confidence can be read."""


def measure_calibration(group: TrajectoryGroup, index: int, options: CalibrationOptions) -> RewardAccount:
    """Return `score(c, y) + right_weight * y + format_weight`, and 0 for a reply whose confidence cannot be read.

    With weight 0.5, `right_weight = 1`, `format_weight = 1` and the Brier rule this is RLCR's reward (arXiv
    2507.16806): `.5 format + .5 right + .5 (1 - (c - y)^2)`, all 0 if ill-formed. Deviation: the form that is checked
    here is the confidence's alone; RLCR's has four tags in their order. Raises ConfigError if the reward lacks the
    part `success`.
    """
    member = group.trajectories[index]
    stated = read_confidence(member.turns[-1].message.text if member.turns else "", options.tag, options.scale)
    right = is_right(member, options.success)
    if stated.value is None:
        said = f" ({stated.text[:40]!r})" if stated.text else ""
        return RewardAccount(value=0.0, reason=f"the confidence is {stated.outcome.replace('_', ' ')}{said}")
    extra = options.right_weight * right + options.format_weight
    limits = {"floor": options.floor, "threshold": options.threshold}
    value, best = (compute_score(options.rule, c, right, **limits) + extra for c in (stated.value, float(right)))
    return RewardAccount(
        value=value,
        reason=f"stated {stated.value:g}, and the answer is {'right' if right else 'wrong'}",
        change=f"had it stated {float(right):g}" if value < best else "",
        changed=best if value < best else None,
    )


def is_right(member: Trajectory, success: str) -> bool:
    """Whether the part of the reward says so. Raises ConfigError naming the parts if there is none of the name."""
    assert isinstance(member.reward, Scored)
    value = member.reward.part(success)
    if value is None:
        names = ", ".join(part.name for part in member.reward.parts) or "none"
        raise ConfigError(
            f"options.success={success!r}: the reward of trajectory {member.id} has no such part; its parts: {names}"
        )
    return value >= 1


CALIBRATION = build_kind(
    "calibration",
    "a scoring rule for the confidence that the last reply states",
    measure_calibration,
    formula="score(c, y) + right_weight y + format_weight; 0 without a confidence",
    paper="RLCR, arXiv 2507.16806",
    options=CalibrationOptions,
)
