"""What the rules read of a stored group: a few numbers per member, and none of its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from turnwise.core.types import FloatArray, Scored, Trajectory, TrajectoryGroup, TrajectoryId, Turn

TRUTH = "success"
"""The part of a reward that says what was wanted; without it, the environment's total does."""

Advantages = Mapping[TrajectoryId, Sequence[FloatArray | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCount:
    """The calls of one tool."""

    calls: int
    raised: int
    """Calls in which the tool's own code raised."""
    example: str
    """One of these exceptions; "" if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditedTurn:
    """What credit gave a turn, beside what became of the group's members that replied like it."""

    advantage: float
    """Mean over the turn's sampled tokens; 0 where it has no credit."""
    outcome: float
    """Mean reward of the members that gave this reply in this state, minus that of all members in this state."""
    is_last: bool
    """Whether it is the last turn of a trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group that trained. Lists are over its scored members that learn, in order."""

    step: int
    rewards: tuple[float, ...]
    """What credit compared."""
    truths: tuple[float, ...]
    """The part `TRUTH` of the environment's reward, or its total."""
    lengths: tuple[int, ...]
    """Sampled tokens."""
    truncated: tuple[bool, ...]
    errors: int
    """Replies that were no well-formed action, over all members."""
    replies: int
    tools: Mapping[str, ToolCount]
    num_alike: int
    """Pairs of members with the same tokens from the first to the last, observations included."""
    num_alike_paid_apart: int
    """Those of them with different rewards."""
    is_identical: bool
    """Whether all members sampled the same tokens."""
    advantages: tuple[float, ...]
    """Mean advantage of a member's sampled tokens; empty where the algorithm has none."""
    turns: tuple[CreditedTurn, ...]
    """Turns in states from which members replied differently and fared differently."""

    @property
    def has_signal(self) -> bool:
        """Whether two rewards differ."""
        return len(set(self.rewards)) > 1


def describe_group(group: TrajectoryGroup, step: int, advantages: Advantages | None) -> GroupFacts:
    """Return the facts of a group that trained in RL step `step`. `advantages` are those of the step; None if its
    algorithm has none."""
    members = [t for t in group.trajectories if t.learns and isinstance(t.reward, Scored)]
    rewards = [t.credited or 0.0 for t in members]
    whole = [_spell(t) for t in members]
    sampled = {tuple(turn.completion.token_ids.tobytes() for turn in t.turns) for t in members}
    alike = [(i, j) for i, j in combinations(range(len(members)), 2) if whole[i] == whole[j]]
    turns = [turn for t in members for turn in t.turns]
    return GroupFacts(
        step=step,
        rewards=tuple(rewards),
        truths=tuple(map(_find_truth, members)),
        lengths=tuple(t.num_sampled_tokens for t in members),
        truncated=tuple(t.stop.is_truncated for t in members),
        errors=sum(bool(turn.message.tool_errors) for turn in turns),
        replies=len(turns),
        tools=_count_tools(turns),
        num_alike=len(alike),
        num_alike_paid_apart=sum(rewards[i] != rewards[j] for i, j in alike),
        is_identical=len(members) > 1 and len(sampled) == 1,
        advantages=() if advantages is None else tuple(_mean_of_member(t, advantages) for t in members),
        turns=_compare_turns(members, rewards, advantages or {}) if advantages is not None else (),
    )


def _find_truth(trajectory: Trajectory) -> float:
    assert isinstance(trajectory.reward, Scored)
    truth = trajectory.reward.part(TRUTH)
    return trajectory.reward.total if truth is None else truth


def _spell(trajectory: Trajectory) -> tuple[tuple[bytes, bytes], ...]:
    """Return all tokens of a trajectory, turn by turn."""
    return tuple((turn.context_ids.tobytes(), turn.completion.token_ids.tobytes()) for turn in trajectory.turns)


def _count_tools(turns: Sequence[Turn]) -> dict[str, ToolCount]:
    records = [record for turn in turns for record in turn.tool_records]
    calls = Counter(record.call.name for record in records)
    raised = [(record.call.name, record.exception) for record in records if record.exception is not None]
    counts, examples = Counter(name for name, _ in raised), dict(reversed(raised))
    return {
        name: ToolCount(calls=calls[name], raised=counts[name], example=examples.get(name, ""))
        for name in sorted(calls)
    }


def _compare_turns(
    members: Sequence[Trajectory], rewards: Sequence[float], advantages: Advantages
) -> tuple[CreditedTurn, ...]:
    """Compare credit with outcomes in linear trajectories.

    A state is all tokens before a reply. The outcome of a reply is the Monte-Carlo advantage within the group, as in
    GiGPO (arXiv 2505.10978, equation 7), here without the division by the standard deviation.
    """
    by_state: dict[tuple[object, ...], list[tuple[int, int, bytes]]] = {}
    for index, trajectory in enumerate(members):
        if trajectory.endings or any(
            turn.parent != (at - 1 if at else None) for at, turn in enumerate(trajectory.turns)
        ):
            continue
        before: tuple[object, ...] = ()
        for at, turn in enumerate(trajectory.turns):
            before = (*before, turn.context_ids.tobytes())
            reply = turn.completion.token_ids.tobytes()
            by_state.setdefault(before, []).append((index, at, reply))
            before = (*before, reply)
    compared = []
    for visits in by_state.values():
        value = fmean(rewards[index] for index, _, _ in visits)
        for index, at, reply in visits:
            outcome = fmean(rewards[other] for other, _, same in visits if same == reply) - value
            if outcome:
                compared.append(
                    CreditedTurn(
                        advantage=_mean_advantage(advantages.get(members[index].id), at),
                        outcome=outcome,
                        is_last=at == len(members[index].turns) - 1,
                    )
                )
    return tuple(compared)


def _mean_of_member(trajectory: Trajectory, advantages: Advantages) -> float:
    """Return the mean advantage of a member's sampled tokens; 0 where it has no credit."""
    parts = [values for values in advantages.get(trajectory.id) or () if values is not None and len(values)]
    return float(np.concatenate(parts).mean()) if parts else 0.0


def _mean_advantage(turns: Sequence[FloatArray | None] | None, at: int) -> float:
    values = None if turns is None or at >= len(turns) else turns[at]
    return float(values.mean()) if values is not None and len(values) else 0.0
