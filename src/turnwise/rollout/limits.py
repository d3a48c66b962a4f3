"""Budgets of a trajectory. Pure: consulted before every reply."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.core.types import Invalid, StopReason, TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budgets of one trajectory. The environment limits the seconds of a tool call (`StopReason.TOOL_TIMEOUT`)."""

    max_turns: int
    max_turn_tokens: int
    """Maximum number of sampled tokens per reply."""
    max_tokens: int
    """Most tokens of the whole trajectory: prompt, replies and observations."""
    timeout_s: float
    """Most seconds of the whole trajectory, wall time."""

    def before_reply(self, *, num_turns: int, num_tokens: int) -> StopReason | int:
        """Return how many tokens the next reply may have, or the reason why there is no next reply.

        `num_tokens` counts everything the reply would be conditioned on.
        """
        if num_turns >= self.max_turns:
            return StopReason.MAX_TURNS
        room = min(self.max_turn_tokens, self.max_tokens - num_tokens)
        return room if room >= 1 else StopReason.MAX_TOKENS


def is_too_long(group: TrajectoryGroup) -> bool:
    """Return whether the opening of the group's task left no room for a single token in any member."""
    members = group.trajectories
    return bool(members) and all(
        not each.turns and each.stop.is_truncated and isinstance(each.reward, Invalid) for each in members
    )
