"""Explain why each turn of a stored trajectory was credited as it was: its advantages, beside those of other methods.

Recomputed from what the run stored: rewards, parts, turn scores, states, log-probabilities and greedy baselines. Model
outputs from before the step (a critic's values, a reference's scores) are not stored, so a method that needs them can
only be shown for the run that used it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from turnwise.algorithms.credit import StatefulCredit
from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit
from turnwise.algorithms.names import find_row
from turnwise.audit.materials import AuditedCredit
from turnwise.core.errors import ConfigError, DataError, boundary
from turnwise.core.messages import to_plain_text
from turnwise.core.paths import split_paths
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup, TrajectoryId
from turnwise.credit.assignment import TurnArrays, compute_advantages, pad_turns, to_credit_trajectories
from turnwise.store.advantages import load_advantages
from turnwise.store.groups import GroupStore
from turnwise.store.journal import JournalState, read_journal
from turnwise.store.rows import id_from_json
from turnwise.store.trajectories import parse_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCredit:
    """Advantages of the sampled tokens of one turn."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTurn:
    """One turn and its credit under every method."""

    text: str
    """The reply as sampled."""
    num_tokens: int
    reward: float
    """Reward of the turn, besides the outcome."""
    state: str | None
    twins: int
    """Number of turns of other members of the group that were taken from the same state; 0 if the environment gives
    no state."""
    parent: int | None
    """The turn that this one follows; None at the start. At the start of a branch it is not the turn before."""
    ends: str
    """The kind and reward of a path that ends here, such as "leaf 1" or "estimate 0"; empty elsewhere and in a linear
    trajectory."""
    credit: Mapping[str, TurnCredit | None]
    """Credit by column; None if the method gave the trajectory none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One trajectory under several methods."""

    prompt: str
    stop: str
    reward: float | None
    group_rewards: tuple[float | None, ...]
    columns: tuple[str, ...]
    """Names of the methods, with " (as trained)" where the advantages are those the run stored."""
    turns: tuple[ExplainedTurn, ...]


def explain_trajectory(run: Path, name: str, methods: Sequence[str], own: AuditedCredit) -> Explanation:
    """Explain the trajectory `name` (DRAW/MEMBER, such as "57/0") of a run under `methods`, by default the run's `own`.

    For the run's own method these are the stored advantages; other methods are recomputed with their default options
    and the run's reward shaping, over the groups of the step that trained it. A method with a memory sees the earlier
    steps first. A group that trained in no step is credited alone.

    Raises DataError when there is no such trajectory, StoreError when its group cannot be read, ConfigError for an
    unknown method, TrainingError where a method needs what the run did not store.
    """
    journal = read_journal(run)
    group, attempt = find_trajectory(run, journal, name)
    record = journal.draws[group.draw.index]
    step = record.step if record.fate == "taken" and record.step in journal.trained else None
    stored = None if step is None else (load_advantages(run, step) or {}).get(attempt.id)
    columns: dict[str, Sequence[NDArray[Any] | None] | None] = {}
    for method in [_find_name(method) for method in methods] or [own.method]:
        if method == own.method and stored is not None:
            columns[f"{method} (as trained)"] = stored
        else:
            recomputed = _recompute(run, journal, own, method, step, group).get(attempt.id)
            columns[method] = None if recomputed is None else pad_turns(recomputed, attempt)
    ends, texts = _describe_ends(attempt), _load_texts(run, attempt)
    return Explanation(
        prompt="".join(map(to_plain_text, group.task.prompt)),
        stop=attempt.stop.value,
        reward=attempt.credited,
        group_rewards=tuple(group.credited_rewards()),
        columns=tuple(columns),
        turns=tuple(
            ExplainedTurn(
                text=texts[index],
                num_tokens=len(turn.completion.token_ids),
                reward=turn.scores.reward or 0.0,
                state=turn.state,
                twins=_count_twins(group, attempt.id, turn.state),
                parent=turn.parent,
                ends=ends.get(index, ""),
                credit={
                    column: _summarise(None if turns is None else turns[index]) for column, turns in columns.items()
                },
            )
            for index, turn in enumerate(attempt.turns)
        ),
    )


def find_trajectory(run: Path, journal: JournalState, name: str) -> tuple[TrajectoryGroup, Trajectory]:
    """The member of that name and its group. Raises DataError when there is none."""
    match = re.fullmatch(r"(\d+)/(\d+)", name)
    if match is None:
        raise DataError(f"trajectory {name!r} is not of the form DRAW/MEMBER, such as 57/0")
    draw, member = int(match.group(1)), int(match.group(2))
    record = journal.draws.get(draw)
    if record is None or record.digest is None:
        finished = [record.draw for record in journal.draws.values() if record.digest is not None]
        draws = f"stored groups of draws {finished[0]} to {finished[-1]}" if finished else "no stored group"
        raise DataError(f"{run} has no group for draw {draw}; it has {draws}")
    group = GroupStore(run).load(draw, digest=record.digest)
    members = [trajectory.id.member for trajectory in group.trajectories]
    if member not in members:
        raise DataError(f"draw {draw} of {run} has no member {member}; it has {members}")
    return group, group.trajectories[members.index(member)]


def _load_texts(run: Path, attempt: Trajectory) -> list[str]:
    """The replies as sampled; as parsed if the store has no text."""
    store = GroupStore(run)
    rows = parse_rows(store.read(attempt.id.draw)[1], source=store.paths(attempt.id.draw)[1])
    [row] = [row for row in rows if id_from_json(row) == attempt.id]
    return [
        stored.get("completion_text", turn.message.text)
        for stored, turn in zip(row["turns"], attempt.turns, strict=True)
    ]


def _find_name(method: str) -> str:
    """The canonical name of a method in the table; an import path as it is."""
    with boundary(ConfigError, "--method"):
        return method if ":" in method else find_row("credit method", method, CREDIT_METHODS).name


def _recompute(
    run: Path, journal: JournalState, own: AuditedCredit, method: str, step: int | None, group: TrajectoryGroup
) -> dict[TrajectoryId, TurnArrays]:
    """Advantages under `method` for all trajectories of a step, or for one group if `step` is None.

    The run's own method has the run's options, any other its defaults.
    """
    with boundary(ConfigError, "--method"):
        credit = own.build() if method == own.method and own.build is not None else build_credit(method)
    store = GroupStore(run)
    first = 1 if isinstance(credit.function, StatefulCredit) else (step or 1)
    batches = [
        [store.load(draw, digest=journal.draws[draw].digest) for draw in journal.taken[number]]
        for number in range(first, (step or 0) + 1)
    ]
    advantages: dict[TrajectoryId, TurnArrays] = {}
    for groups in batches or [[group]]:
        trajectories = to_credit_trajectories(groups, shaping=own.shaping)
        advantages = compute_advantages(credit, groups, trajectories)
    return advantages


def _count_twins(group: TrajectoryGroup, name: TrajectoryId, state: str | None) -> int:
    if state is None:
        return 0
    return sum(turn.state == state for t in group.trajectories if t.id != name for turn in t.turns)


def _describe_ends(attempt: Trajectory) -> dict[int, str]:
    """Kind and reward of every path of a branched trajectory, by the path's last turn."""
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
