"""Why each turn of a trajectory was credited as it was: advantages of a finished run, beside those other methods would
have given.

Recomputed from what the run stored: rewards, parts, signals, states, log-probabilities, greedy attempts. What a model
said before the step (a critic's values, a reference's scores) is not stored, so a method that needs it can only be
shown for the run that used it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turnwise.runs.sampling import read_greedy_rewards

from turnwise.algorithms.credit import StatefulCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit
from turnwise.algorithms.names import find_row
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError, boundary
from turnwise.core.paths import split_paths
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.credit.assignment import Key, compute_advantages, pad_turns, to_credit_trajectories
from turnwise.runs.evaluate import load_run
from turnwise.runs.methods import build_credit_method
from turnwise.store.trajectories import load_groups, load_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCredit:
    """Advantages of the sampled tokens of one turn."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTurn:
    """One turn and what every method made of it."""

    text: str
    """The reply as sampled."""
    num_tokens: int
    reward: float
    """Of the turn, besides the outcome."""
    state: str | None
    twins: int
    """Turns of other members of the group that were taken from the same state; 0 where the environment gives no
    state."""
    parent: int | None
    """The turn it follows; None at the start. Not the one before it where a branch begins."""
    ends: str
    """What kind of path ends here and with which reward, such as "leaf 1" or "estimate 0"; empty elsewhere and in a
    linear trajectory."""
    credit: Mapping[str, TurnCredit | None]
    """By column; None where the method gave the trajectory none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One trajectory under several methods."""

    prompt: str
    stop: str
    reward: float | None
    group_rewards: tuple[float | None, ...]
    columns: tuple[str, ...]
    """Names of the methods; "... (as trained)" where the numbers are those the run used."""
    turns: tuple[ExplainedTurn, ...]


def explain_trajectory(run: Path, name: str, methods: Sequence[str]) -> Explanation:
    """The trajectory `name` (GROUP/MEMBER, such as "step12/task3/0") of a finished run under `methods`.

    The run's own method stands for what it stored; other methods are computed anew with their default options and the
    run's reward shaping, over the groups the run learned from. A method with a memory is fed the earlier steps first.

    Raises DataError when there is no such trajectory, ConfigError for an unknown method, TrainingError where a method
    needs what the run did not store."""
    folder, config = load_run(run)
    match = re.fullmatch(r"(step(\d+)/.+)/(\d+)", name)
    if match is None:
        raise DataError(f"trajectory {name!r} is not of the form stepN/taskM/MEMBER, such as step12/task3/0")
    group_id, step, member = match.group(1), int(match.group(2)), int(match.group(3))
    trajectories = folder.path / "trajectories"
    groups, stored = load_groups(trajectories, _batch(step))
    group = next((g for g in groups if g.group_id == group_id), None)
    attempt = next((t for t in group.trajectories if t.member == member), None) if group is not None else None
    if group is None or attempt is None:
        known = f"{groups[0].group_id}/0 to {groups[-1].group_id}/{len(groups[-1].trajectories) - 1}"
        raise DataError(f"step {step} of {folder.path} has no trajectory {name!r}; it has {known}")
    row = next(r for r in load_rows(trajectories, _batch(step)) if r["group_id"] == group_id and r["member"] == member)
    key = (group_id, member)
    columns: dict[str, Sequence[NDArray[Any] | None] | None] = {}
    for method in [_find_name(name) for name in methods] or [config.credit.method]:
        if method == config.credit.method and key in stored:
            columns[f"{method} (as trained)"] = stored[key]
        else:
            recomputed = _recompute(trajectories, config, method, step).get(key)
            columns[method] = None if recomputed is None else pad_turns(recomputed, attempt)
    ends = _describe_ends(attempt)
    return Explanation(
        prompt="".join(message.text for message in group.task.prompt),
        stop=attempt.stop.value,
        reward=attempt.reward.total if isinstance(attempt.reward, Scored) else None,
        group_rewards=tuple(group.rewards()),
        columns=tuple(columns),
        turns=tuple(
            ExplainedTurn(
                text=row["turns"][index].get("completion_text", turn.message.text),
                num_tokens=len(turn.completion.token_ids),
                reward=sum(signal.value for signal in turn.signals if signal.name == "reward"),
                state=turn.state,
                twins=_count_twins(group, member, turn.state),
                parent=turn.parent,
                ends=ends.get(index, ""),
                credit={
                    column: _summarise(None if turns is None else turns[index]) for column, turns in columns.items()
                },
            )
            for index, turn in enumerate(attempt.turns)
        ),
    )


def _find_name(method: str) -> str:
    """The canonical name of a method of the table; an import path as it is."""
    with boundary(ConfigError, "--method"):
        return method if ":" in method else find_row("credit method", method, CREDIT_METHODS).name


def _batch(step: int) -> str:
    return f"step_{step:06d}"


def _recompute(folder: Path, config: RunConfig, method: str, step: int) -> dict[Key, list[NDArray[np.float64]]]:
    """Advantages of all trajectories of a step under `method` with its defaults, or the run's options where it is the
    run's own."""
    with boundary(ConfigError, "--method"):
        credit = build_credit_method(config) if method == config.credit.method else build_credit(method)
    remembers = isinstance(credit.function, StatefulCredit)
    advantages: dict[Key, list[NDArray[np.float64]]] = {}
    for number in range(1 if remembers else step, step + 1):
        groups, stored = load_groups(folder, _batch(number))
        learned = [g for g in groups if any((g.group_id, t.member) in stored for t in g.trajectories)] or groups
        greedy = (
            load_groups(folder, f"{_batch(number)}_greedy")[0]
            if (folder / f"{_batch(number)}_greedy.jsonl").exists()
            else []
        )
        seen = to_credit_trajectories(
            learned, shaping=config.credit.shaping, greedy_rewards=read_greedy_rewards(greedy)
        )
        advantages = compute_advantages(credit, learned, seen)
    return advantages


def _count_twins(group: TrajectoryGroup, member: int, state: str | None) -> int:
    if state is None:
        return 0
    return sum(turn.state == state for t in group.trajectories if t.member != member for turn in t.turns)


def _describe_ends(attempt: Trajectory) -> dict[int, str]:
    """By the last turn of every path of a branched trajectory, the path's kind and reward."""
    paths = split_paths(attempt)
    rewards = [path.trajectory.reward for path in paths]
    return {
        path.turns[-1]: f"{path.kind} {reward.total:g}" if isinstance(reward, Scored) else f"{path.kind} failed"
        for path, reward in zip(paths, rewards, strict=True)
        if len(paths) > 1
    }


def _summarise(advantages: NDArray[Any] | None) -> TurnCredit | None:
    if advantages is None or not len(advantages):
        return None
    return TurnCredit(mean=float(advantages.mean()), low=float(advantages.min()), high=float(advantages.max()))
