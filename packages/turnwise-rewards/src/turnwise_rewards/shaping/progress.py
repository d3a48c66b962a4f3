"""Progress: what the environment says about how far the agent got.

Invites a stop where progress is high and the task is not done: the end keeps what it has. The potential-based form
takes it back at the end, so that it changes no best policy; summed over a trajectory it is the same for all members of
a group, and so it is a credit method, `credit.method = "potential"`, which gives each turn its share, and no part of
the sum that a trajectory earns.
"""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError
from turnwise.core.types import Trajectory, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise_rewards.shaping.measured import build_kind


class ProgressOptions(Section):
    """Options of the part `progress`."""

    source: str = Field("progress", min_length=1)
    """What is read of every turn: "progress" or "potential" (`TurnScores`), or the name of a signal of the
    environment. Progress and signals are summed; of the potential, the gain from the first turn to the last counts."""


def measure_progress(group: TrajectoryGroup, index: int, options: ProgressOptions) -> RewardAccount:
    """Return the sum of a turn-wise signal, or the potential before the last reply minus that before the first.

    A turn without the signal adds nothing. Raises ConfigError if no turn has it, with the names of those that exist.
    """
    member = group.trajectories[index]
    values = read_turns(member, options.source)
    known = [(number, value) for number, value in enumerate(values, start=1) if value is not None]
    if not known:
        names = sorted({signal.name for turn in member.turns for signal in turn.signals})
        raise ConfigError(
            f"options.source={options.source!r}: no turn of trajectory {member.id} has it; the environment's signals: "
            f"{', '.join(names) or 'none'}"
        )
    if options.source == "potential":
        first, last = known[0][1], known[-1][1]
        return RewardAccount(value=last - first, reason=f"the potential went from {first:g} to {last:g}")
    best = max(known, key=lambda pair: pair[1])
    return RewardAccount(
        value=sum(value for _, value in known), reason=f"{len(known)} turns, most in turn {best[0]} ({best[1]:+g})"
    )


def read_turns(trajectory: Trajectory, source: str) -> list[float | None]:
    """Return the value of a source in every turn, None where a turn has none."""
    if source in ("progress", "potential"):
        return [getattr(turn.scores, source) for turn in trajectory.turns]
    return [next((signal.value for signal in turn.signals if signal.name == source), None) for turn in trajectory.turns]


PROGRESS = build_kind(
    "progress",
    "what the environment's turn-wise signal adds up to",
    measure_progress,
    formula="sum_k signal_k, or Phi(last) - Phi(first)",
    options=ProgressOptions,
)
