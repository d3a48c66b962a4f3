"""Chooses which waiting member starts next, and which finished members a group keeps. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from turnwise.core.types import Reward, Scored


class Waiting(Protocol):
    """A member of a group that waits for a rollout slot."""

    @property
    def draw(self) -> int:
        """Index of the group's draw."""

    @property
    def member(self) -> int:
        """Index in the group, from 0."""


class Finished(Protocol):
    """A member of a group that has finished."""

    @property
    def reward(self) -> Reward:
        """Scored, or Invalid for a member that failed."""


WaitingT = TypeVar("WaitingT", bound=Waiting)
FinishedT = TypeVar("FinishedT", bound=Finished)


def start_order(waiting: Iterable[WaitingT], needs: Mapping[int, float]) -> list[WaitingT]:
    """Order waiting members for rollout slots: long groups first, which shortens the tail of a batch.

    Member 0 of every group comes first, in draw order: it shows how long its group may be. The other members follow,
    groups with the largest need first, ties by draw, then by member.

    Args:
        waiting: members without a slot, in any order.
        needs: per draw, the largest need of its finished members so far, in sampled tokens or in seconds (one unit for
            all). A draw without an entry may be of any length, so it counts as the largest.

    Members of one task tend to need about the same, and one that starts late and runs long holds up everything
    (context-aware scheduling of Seer, arXiv 2511.14617). Deviation: nothing is divided within a member.
    """

    def rank(place: WaitingT) -> tuple[bool, float, int, int]:
        is_first = place.member == 0
        need = 0.0 if is_first else needs.get(place.draw, math.inf)
        return not is_first, -need, place.draw, place.member

    return sorted(waiting, key=rank)


def choose_members(finished: Sequence[FinishedT], group_size: int) -> tuple[list[FinishedT], list[FinishedT]]:
    """Divide the members of a group that started more of them than it trains: `(kept, overdrawn)`.

    Args:
        finished: members in the order in which they finished.
        group_size: how many members the group trains with, at least 1.

    Returns:
        The first `group_size` members with a scored reward, and all others. If fewer are scored, the first members
        that failed fill the remaining places and stay visible as failures. Both lists are in the order of finishing.

    The choice favours short trajectories: of 10 members the 2 slowest never train, whatever their rewards. Where reward
    depends on length, the group's mean reward is that of its fast members, and long solutions are reinforced more
    rarely than they are sampled. The bias grows with the share overdrawn; compare lengths and rewards of the kept and
    the overdrawn. Raises ValueError for a `group_size` below 1.
    """
    if group_size < 1:
        raise ValueError(f"group_size={group_size}; a group needs at least 1 member")
    is_scored = [isinstance(member.reward, Scored) for member in finished]
    # A stable sort: scored members first, each kind in the order of finishing.
    by_preference = sorted(range(len(finished)), key=lambda i: not is_scored[i])
    kept = set(by_preference[:group_size])
    return (
        [member for i, member in enumerate(finished) if i in kept],
        [member for i, member in enumerate(finished) if i not in kept],
    )
