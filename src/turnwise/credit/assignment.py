"""Converts trajectories into the input of credit methods, and their output into advantages per sampled token.

A turn's `TurnScores` fill the fields of the same names in `CreditTurn`, and the first turn's `answer_prior` fills the
trajectory's. The greedy outcome comes from the group's `baseline`, the role from the group and its environment.

Every path of a branched trajectory that trains is a trajectory to credit, and a leaf of the tree named after the whole.
A turn shared by several paths trains once, with the sum of their advantages, which has the same weight as training
every copy. State values are the mean rewards of the continuations from a state, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.advantages.reinforce import compute_discounted_returns
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn, TokenAdvantages, TokenField
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.kl import compute_kl_rewards
from turnwise.config.credit import ShapingSection
from turnwise.core.errors import TrainingError, boundary
from turnwise.core.paths import Path, compute_state_values, trained_paths, unfold_groups
from turnwise.core.sampled import training_logprobs
from turnwise.core.types import FinishReason, Scored, Trajectory, TrajectoryGroup, TrajectoryId, TurnScores
from turnwise.credit.shaping import compute_shaped_rewards, shape_baseline

TurnArrays = list[NDArray[np.float64]]
"""One array per turn, `[sampled tokens of the turn]` each."""
TokenScores = Mapping[TokenField, Mapping[TrajectoryId, TurnArrays]]
"""Model scores of sampled tokens, by field of CreditTurn."""

STATE_SCORES = ("state_value", "answer_probability", "potential")
"""Scores that describe a state: a reply that never reached the environment leaves the state unchanged."""
STEP_SCORES = ("process_score", "progress")
"""Scores of a reply's effect: a reply that never reached the environment had none."""


def to_credit_trajectories(
    groups: Sequence[TrajectoryGroup],
    *,
    shaping: ShapingSection | None = None,
    scores: TokenScores | None = None,
    final_values: Mapping[TrajectoryId, float] | None = None,
) -> list[CreditTrajectory]:
    """Return every path that trains (`trained_paths`) of every trajectory of the groups, in order.

    Most trajectories are one path.

    Args:
        shaping: changes rewards before credit; None leaves them.
        scores: per-token fields besides the sampler's log-probabilities.
        final_values: the critic's value after the last token.

    A reply that reached its token limit never reached the environment and has no scores. If the batch has scores of a
    name, such a reply gets 0 for `process_score` and `progress`, and for the others the score of the turn before it (0
    for the first turn).
    """
    offered = {
        each.name
        for each in fields(TurnScores)
        if any(
            getattr(turn.scores, each.name) is not None
            for group in groups
            for t in group.trajectories
            for turn in t.turns
        )
    }
    seen = []
    for group, unfolded in zip(groups, unfold_groups(groups), strict=True):
        rewards = iter(compute_shaped_rewards(unfolded, shaping))
        greedy_reward = shape_baseline(group, shaping)
        for trajectory in group.trajectories:
            for path in trained_paths(trajectory):
                tokens = {
                    field: [by_id[trajectory.id][index] for index in path.turns]
                    for field, by_id in (scores or {}).items()
                    if trajectory.id in by_id
                }
                seen.append(
                    CreditTrajectory(
                        group=name_group(group, trajectory),
                        reward=next(rewards),
                        turns=_to_turns(trajectory, path, offered, tokens),
                        parts=_read_parts(path.trajectory),
                        answer_prior=trajectory.turns[0].scores.answer_prior if trajectory.turns else None,
                        greedy_reward=greedy_reward,
                        role=name_role(group),
                        tree=str(trajectory.id),
                        truncated=path.trajectory.stop.is_truncated,
                        final_value=(final_values or {}).get(trajectory.id),
                    )
                )
    return seen


def name_group(group: TrajectoryGroup, trajectory: Trajectory) -> str:
    """Return the name under which credit compares the trajectory with others, as its environment declares
    (`Compare`)."""
    draw, name = group.draw.index, trajectory.id
    if trajectory.compare == "episode":
        return f"{draw}/{name.member}"
    suffix = f"/{name.role}" if name.role != "agent" else ""
    return f"{draw}/{name.member}{suffix}/alone" if trajectory.compare == "nobody" else f"{draw}{suffix}"


def name_role(group: TrajectoryGroup) -> str:
    """Return the name under which trajectories share a running baseline: the role within the task's environment. In a
    mixture, the same role in two games has two names."""
    return f"{group.task.environment}/{group.role}"


def _read_parts(trajectory: Trajectory) -> dict[str, float]:
    reward = trajectory.reward
    return {part.name: part.value for part in reward.parts} if isinstance(reward, Scored) else {}


def _to_turns(
    whole: Trajectory, path: Path, offered: set[str], tokens: Mapping[TokenField, TurnArrays]
) -> tuple[CreditTurn, ...]:
    turns: list[CreditTurn] = []
    values = compute_state_values(whole) if path.kind == "first" else [None] * len(path.turns)
    for index, turn in enumerate(path.trajectory.turns):
        unseen = turn.completion.finish_reason is FinishReason.LENGTH
        before = turns[turn.parent] if turn.parent is not None else None
        numbers: dict[str, float | None] = {name: getattr(turn.scores, name) for name in (*STATE_SCORES, *STEP_SCORES)}
        if values[index] is not None:
            numbers["state_value"] = values[index]
        for name, value in numbers.items():
            if value is None and unseen and name in offered:
                inherited = getattr(before, name) if before is not None and name in STATE_SCORES else None
                numbers[name] = 0.0 if inherited is None else inherited
        by_token = {field: arrays[index] for field, arrays in tokens.items()}
        turns.append(
            CreditTurn(
                num_tokens=len(turn.completion.token_ids),
                parent=turn.parent,
                node=path.turns[index],
                reward=turn.scores.reward or 0.0,
                state=turn.state,
                logprobs=training_logprobs(turn.completion).astype(np.float64),
                **numbers,  # type: ignore[arg-type]
                **by_token,  # type: ignore[arg-type]
            )
        )
    return tuple(turns)


def compute_advantages(
    credit: CheckedCredit, groups: Sequence[TrajectoryGroup], trajectories: Sequence[CreditTrajectory]
) -> dict[TrajectoryId, TurnArrays]:
    """Compute the advantages of every trajectory per turn, for the turns that `take_trained` kept.

    `trajectories` come from `to_credit_trajectories`. A method that whitens over the batch does so within each role, so
    that no role's rewards affect another's advantages. Raises TrainingError naming trajectory, turn and what is missing
    or wrong.
    """
    paths = list_paths(groups)
    roles = [name.role if credit.method.takes_batch_statistics else "" for name, _ in paths]
    advantages: list[TokenAdvantages | None] = [None] * len(paths)
    with boundary(TrainingError, f"credit.method={credit.method.name!r}"):
        for role in dict.fromkeys(roles):
            indices = [index for index, other in enumerate(roles) if other == role]
            for index, credited in zip(indices, credit([trajectories[index] for index in indices]), strict=True):
                advantages[index] = credited
    by_trajectory: dict[TrajectoryId, TurnArrays] = {}
    for (name, path), credited in zip(paths, advantages, strict=True):
        if credited is None:
            continue
        turns = by_trajectory.setdefault(name, [])
        for index, values in zip(path.turns, credited, strict=True):
            if index > len(turns):
                raise TrainingError(
                    f"trajectory {name}: turn {len(turns)} never trains, yet it precedes turn {index}, which does"
                )
            if index == len(turns):
                turns.append(values)
            else:
                turns[index] = turns[index] + values
    return by_trajectory


def list_paths(groups: Sequence[TrajectoryGroup]) -> list[tuple[TrajectoryId, Path]]:
    """Return the paths that `to_credit_trajectories` converts, each with the id of its trajectory."""
    return [(t.id, path) for group in groups for t in group.trajectories for path in trained_paths(t)]


def pad_turns(arrays: TurnArrays, trajectory: Trajectory) -> list[NDArray[np.float64] | None]:
    """Return the advantages of all turns of a trajectory; None for turns that never train."""
    return [*arrays, *[None] * (len(trajectory.turns) - len(arrays))]


def add_kl_penalty(advantages: TurnArrays, trajectory: CreditTrajectory, coefficient: float) -> TurnArrays:
    """Return advantages plus the reward-to-go of the KL penalty, `-coefficient * k1` per sampled token.

    It is undiscounted and without a baseline. It is added after the comparison within the group, whose mean and
    deviation it would otherwise distort (`compute_kl_rewards`).
    """
    joined = [
        compute_kl_rewards(turn.logprobs, turn.reference_logprobs, coefficient=coefficient)
        for turn in trajectory.turns
        if turn.logprobs is not None and turn.reference_logprobs is not None
    ]
    returns = compute_discounted_returns(np.concatenate([np.zeros(0), *joined]), gamma=1.0)
    cuts = np.cumsum([turn.num_tokens for turn in trajectory.turns])[:-1]
    return [credit + penalty for credit, penalty in zip(advantages, np.split(returns, cuts), strict=True)]
