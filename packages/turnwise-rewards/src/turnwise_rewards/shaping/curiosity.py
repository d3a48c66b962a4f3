"""Curiosity: a bonus for what few members of the group have seen.

Invites a walk through noise: any observation that nobody else has pays, whatever it is worth. It has no
potential-based form: a potential depends on the state alone, and this bonus on what others did. `half_life` lets it
fade, `credit.shaping.gate` and `cap` bound it.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.messages import to_plain_text
from turnwise.core.types import Trajectory, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount
from turnwise_rewards.shaping.measured import build_kind, count_of


class CuriosityOptions(Section):
    """Options of the part `curiosity`."""

    half_life: int = Field(0, ge=0)
    """Weight versions after which the bonus has halved, counted from the version at which the group was opened; 0: it
    does not fade."""


def measure_curiosity(group: TrajectoryGroup, index: int, options: CuriosityOptions) -> RewardAccount:
    """Return `2^(-version / half_life) * mean over s of N(s)^(-1/2)`, where s are the different states that the member
    reached and N(s) is the number of members that reached it, itself included (1 for a state of its own).

    The mean, not the sum, so that longer episodes earn no more; 0 if it reached no state. The states are those of
    `list_reached`. Counts within the group need no memory: a continued run and an audit find the same value, and a
    state of one task says nothing about another task's.
    """
    visited = [list_reached(member) for member in group.trajectories]
    counts = Counter(state for states in visited for state in states)
    own = visited[index]
    if not own:
        return RewardAccount(value=0.0, reason="reached no state beyond the first")
    value = sum(counts[state] ** -0.5 for state in sorted(own)) / len(own)
    faded = 2.0 ** (-group.version / options.half_life) if options.half_life else 1.0
    alone = sum(counts[state] == 1 for state in own)
    return RewardAccount(
        value=value * faded,
        reason=f"{count_of(alone, len(own), 'state')} that no other member reached"
        + (f"; faded to {faded:.2g} at version {group.version}" if options.half_life else ""),
        change="if all were its own",
        changed=faded,
    )


def list_reached(trajectory: Trajectory) -> frozenset[str]:
    """Return the states that a trajectory reached after its first reply: the environment's (`Turn.state`), or, of one
    that gives none, hashes of what it answered in each turn. The first state is everybody's and not listed."""
    later = [turn for turn in trajectory.turns if turn.parent is not None]
    states = frozenset(turn.state for turn in later if turn.state is not None)
    if states or any(turn.state is not None for turn in trajectory.turns):
        return states
    seen = ["\0".join(map(to_plain_text, turn.observations)) for turn in trajectory.turns if turn.observations]
    return frozenset(hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16] for text in seen)


CURIOSITY = build_kind(
    "curiosity",
    "a bonus for states that few members of the group reached",
    measure_curiosity,
    formula="2^(-version / half_life) mean_s N(s)^(-1/2)",
    paper="count-based bonus of Strehl and Littman 2008, within a group",
    options=CuriosityOptions,
)
