"""From trajectories to what credit methods see, and from there to advantages per sampled token.

What an environment measures reaches a method by name: signals called `reward`, `state_value`, `process_score`,
`answer_probability`, `progress` or `potential` fill the turn's field of that name, `state_hash` fills `state`, the
parts of the reward fill `parts`, and `payload["role"]` of the task fills `role`. Several signals of one name on a turn
add up.

Every path of a branched trajectory that trains is a trajectory to credit, and a leaf of the tree named after the whole.
A turn that several of them share is one turn when it trains: it gets the sum of what they got for it, which weighs as
training every copy would. State values are the mean rewards of the continuations from a state, where there are any."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.algorithms.advantages.reinforce import compute_discounted_returns
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn, TokenField
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.kl import compute_kl_rewards
from turnwise.algorithms.turns.igpo import PRIOR_PART
from turnwise.config.credit import ShapingSection
from turnwise.core.errors import ConfigError, TrainingError, boundary
from turnwise.core.paths import Path, compute_state_values, trained_paths, unfold_groups
from turnwise.core.types import FinishReason, Scored, Trajectory, TrajectoryGroup, Turn
from turnwise.rewards.gates import gate_group
from turnwise.rewards.length import compute_overlong_penalty
from turnwise.store.sampled import training_logprobs

Key = tuple[str, int]
"""`(group_id, member)`."""
TurnArrays = list[NDArray[np.float64]]
"""One array per turn, `[sampled tokens of the turn]` each."""
TokenScores = Mapping[TokenField, Mapping[Key, TurnArrays]]
"""What models said about sampled tokens, by field of CreditTurn."""

STATE_SIGNALS = ("state_value", "answer_probability", "potential")
"""Signals that describe a state: a reply the environment never saw leaves it as it was."""
STEP_SIGNALS = ("process_score", "progress")
"""Signals that describe what a reply did: one the environment never saw did nothing."""


def to_credit_trajectories(
    groups: Sequence[TrajectoryGroup],
    *,
    shaping: ShapingSection | None = None,
    scores: TokenScores | None = None,
    final_values: Mapping[Key, float] | None = None,
    greedy_rewards: Mapping[str, float] | None = None,
) -> list[CreditTrajectory]:
    """Every path that trains, of every trajectory of the groups, in order (`trained_paths`); most trajectories are one
    path.

    Args:
        shaping: changes rewards before credit; None leaves them.
        scores: per-token fields besides the sampler's log-probabilities.
        final_values: the critic's value after the last token.
        greedy_rewards: outcome of the greedy attempt by group id.

    A reply that hit its token limit never reached the environment and has no signals. Where the batch has signals of a
    name, such a reply gets 0 for `process_score` and `progress`, and for the others the number of the turn before it (0
    for the first turn)."""
    offered = {
        signal.name for group in groups for t in group.trajectories for turn in t.turns for signal in turn.signals
    }
    found = []
    for group, unfolded in zip(groups, unfold_groups(groups), strict=True):
        role = str(group.task.payload.get("role", ""))
        rewards = iter(compute_shaped_rewards(unfolded, shaping))
        for trajectory in group.trajectories:
            key = (group.group_id, trajectory.member)
            for path in trained_paths(trajectory):
                tokens = {
                    field: [by_key[key][index] for index in path.turns]
                    for field, by_key in (scores or {}).items()
                    if key in by_key
                }
                found.append(
                    CreditTrajectory(
                        group=group.group_id,
                        reward=next(rewards),
                        turns=_to_turns(trajectory, path, offered, tokens),
                        parts=_read_parts(path.trajectory),
                        greedy_reward=(greedy_rewards or {}).get(group.group_id),
                        role=role,
                        tree=f"{group.group_id}/{trajectory.member}",
                        truncated=path.trajectory.stop.is_truncated,
                        final_value=(final_values or {}).get(key),
                    )
                )
    return found


def _read_parts(trajectory: Trajectory) -> dict[str, float]:
    """The reward's parts, and how likely the gold answer was before the first turn where that was scored."""
    parts = {part.name: part.value for part in trajectory.reward.parts} if isinstance(trajectory.reward, Scored) else {}
    prior = _signal(trajectory.turns[0], PRIOR_PART) if trajectory.turns else None
    return parts if prior is None else parts | {PRIOR_PART: prior}


def _to_turns(
    whole: Trajectory, path: Path, offered: set[str], tokens: Mapping[TokenField, TurnArrays]
) -> tuple[CreditTurn, ...]:
    turns: list[CreditTurn] = []
    values = compute_state_values(whole) if path.kind == "first" else [None] * len(path.turns)
    for index, turn in enumerate(path.trajectory.turns):
        unseen = turn.completion.finish_reason is FinishReason.LENGTH
        before = turns[turn.parent] if turn.parent is not None else None
        numbers: dict[str, Any] = {name: _signal(turn, name) for name in (*STATE_SIGNALS, *STEP_SIGNALS)}
        if values[index] is not None:
            numbers["state_value"] = values[index]
        for name, value in numbers.items():
            if value is None and unseen and name in offered:
                inherited = getattr(before, name) if before is not None and name in STATE_SIGNALS else None
                numbers[name] = 0.0 if inherited is None else inherited
        turns.append(
            CreditTurn(
                num_tokens=len(turn.completion.token_ids),
                parent=turn.parent,
                node=path.turns[index],
                reward=_signal(turn, "reward") or 0.0,
                state=turn.state,
                logprobs=training_logprobs(turn.completion).astype(np.float64),
                **(numbers | {field: arrays[index] for field, arrays in tokens.items()}),
            )
        )
    return tuple(turns)


def _signal(turn: Turn, name: str) -> float | None:
    """The sum of a turn's signals of that name; None when there is none."""
    values = [signal.value for signal in turn.signals if signal.name == name]
    return math.fsum(values) if values else None


def compute_shaped_rewards(group: TrajectoryGroup, shaping: ShapingSection | None) -> list[float | None]:
    """Rewards of a group as credit sees them: the overlong punishment first, then the gate.

    Raises ConfigError when the gate names a part the reward does not have.
    """
    rewards = group.rewards()
    if shaping is None:
        return rewards
    if shaping.max_tokens:
        rewards = [
            None
            if reward is None
            else reward
            + compute_overlong_penalty(t.num_sampled_tokens, max_tokens=shaping.max_tokens, buffer=shaping.buffer)
            for reward, t in zip(rewards, group.trajectories, strict=True)
        ]
    return gate_group(rewards, read_metric(group, shaping.gate, "credit.shaping.gate")) if shaping.gate else rewards


def read_metric(group: TrajectoryGroup, name: str, key: str) -> list[float | None]:
    """The part `name` of every member's reward, or its total for "reward"; None where a member could not be scored.

    Raises ConfigError naming the option `key` and the parts there are.
    """
    values: list[float | None] = []
    for trajectory in group.trajectories:
        reward = trajectory.reward
        if not isinstance(reward, Scored):
            values.append(None)
            continue
        value = reward.total if name == "reward" else reward.part(name)
        if value is None:
            known = ", ".join(part.name for part in reward.parts) or "none"
            raise ConfigError(
                f"{key}={name!r}: the reward of task {trajectory.task_id} has no such part; its parts: {known}"
            )
        values.append(value)
    return values


def compute_advantages(
    credit: CheckedCredit, groups: Sequence[TrajectoryGroup], trajectories: Sequence[CreditTrajectory]
) -> dict[Key, TurnArrays]:
    """Advantages per turn of every trajectory that trains: of the turns of `take_trained`, which comes before all
    others.

    `trajectories` as `to_credit_trajectories` gives them. Raises TrainingError naming trajectory, turn and what is
    missing or wrong."""
    with boundary(TrainingError, f"credit.method={credit.method.name!r}"):
        advantages = credit(trajectories)
    found: dict[Key, TurnArrays] = {}
    for (key, path), credited in zip(list_paths(groups), advantages, strict=True):
        if credited is None:
            continue
        turns = found.setdefault(key, [])
        for index, values in zip(path.turns, credited, strict=True):
            if index > len(turns):
                raise TrainingError(
                    f"trajectory {key[0]}/{key[1]}: turn {len(turns)} never trains and yet comes before turn "
                    f"{index}, which does"
                )
            if index == len(turns):
                turns.append(values)
            else:
                turns[index] = turns[index] + values
    return found


def list_paths(groups: Sequence[TrajectoryGroup]) -> list[tuple[Key, Path]]:
    """The paths that `to_credit_trajectories` makes trajectories of, with the trajectory each belongs to."""
    return [
        ((group.group_id, t.member), path) for group in groups for t in group.trajectories for path in trained_paths(t)
    ]


def pad_turns(arrays: TurnArrays, trajectory: Trajectory) -> list[NDArray[np.float64] | None]:
    """Advantages of all turns of a trajectory; None for those that never train."""
    return [*arrays, *[None] * (len(trajectory.turns) - len(arrays))]


def add_kl_penalty(advantages: TurnArrays, trajectory: CreditTrajectory, coefficient: float) -> TurnArrays:
    """Advantages plus the reward-to-go of the KL penalty, `-coefficient * k1` per sampled token, undiscounted and
    without a baseline.

    Added after the comparison within the group, whose mean and deviation it would otherwise distort
    (`compute_kl_rewards`)."""
    joined = [
        compute_kl_rewards(turn.logprobs, turn.reference_logprobs, coefficient=coefficient)
        for turn in trajectory.turns
        if turn.logprobs is not None and turn.reference_logprobs is not None
    ]
    returns = compute_discounted_returns(np.concatenate([np.zeros(0), *joined]), gamma=1.0)
    cuts = np.cumsum([turn.num_tokens for turn in trajectory.turns])[:-1]
    return [credit + penalty for credit, penalty in zip(advantages, np.split(returns, cuts), strict=True)]
