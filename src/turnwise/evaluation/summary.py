"""Summarises a held-out evaluation, per kind of task and overall."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from turnwise.core.relations import name_cluster
from turnwise.core.roles import count_members, take_measured
from turnwise.core.types import Scored, Task, Trajectory, TrajectoryGroup
from turnwise.evaluation.choosing import Attempt, Chosen, list_chosen, read_attempt
from turnwise.evaluation.intervals import compute_clustered_interval, compute_pass_at

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAt:
    """Share of tasks for which at least one of several samples succeeded."""

    k: int
    n: int
    """Number of tasks with that many scored samples."""
    share: float
    """Mean of the unbiased estimate over these tasks."""
    low: float
    high: float
    """`low` to `high` is the 95% interval of `share`; clusters of tasks are independent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Results on one kind of task."""

    kind: str
    n: int
    """Number of different tasks, by id, with a scored episode: copies of a row are one task."""
    episodes: int
    """Number of scored episodes; an episode counts once, however many roles learn in it."""
    success: float
    """Share of episodes that succeeded (with k samples per task: mean@k). If only some of an episode's learning roles
    succeeded, it counts with their share. Never NaN: with n=0 it is 0.0 with the interval (0, 1)."""
    low: float
    high: float
    """`low` to `high` is the 95% interval of `success`, which accounts for several episodes per task and several tasks
    per cluster (`evaluation.intervals`)."""
    tool_calls: float
    """Mean per episode."""
    response_tokens: float
    """Mean number of tokens per episode sampled by roles that learn; tool answers are not counted."""
    errored: int
    """Scored episodes in which at least one tool call failed."""
    recovered: float | None
    """Share of the errored episodes that succeeded in the end; None if none errored."""
    truncated: float
    """Share of episodes that a limit ended."""
    invalid: int
    """Number of episodes that could not be scored; not part of `episodes`."""
    pass_at: tuple[PassAt, ...] = ()
    """For 1, 2, 4, ... and all samples of a task; empty if tasks have one sample."""
    chosen: tuple[Chosen, ...] = ()
    """Choosing one of 2, 4, ... and all samples by vote or score; empty if tasks have one sample."""
    clusters: int | None = None
    """Number of clusters of tasks with a scored episode: equals `n` where tasks share no world. None in summaries of
    older versions."""
    reward: float | None = None
    """Mean total reward of the roles that learn; None if nothing was scored."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean of each part of the reward, over the rewards that have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer of an evaluation that stops when it is known (`evaluation.sequential`)."""

    against: str
    """The share, or the evaluation, that success was compared with."""
    side: Literal["above", "below"] | None
    """On which side of it success is; None if all tasks were played and it is not known."""
    error: float
    """Probability of a wrong answer, at most."""
    results: int
    """Number of clusters of tasks until the answer."""
    available: int
    """Number of clusters that there were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One evaluation."""

    name: str
    label: str
    step: int
    """Optimizer steps of RL before the evaluation."""
    rows: tuple[Row, ...]
    """One per kind, in alphabetical order, then "all"."""
    decision: Decision | None = None
    """What an evaluation that stops when its answer is known found; None for one of a size fixed before."""

    def row(self, kind: str) -> Row:
        """Return the row of a kind. Raises KeyError naming the known kinds."""
        for row in self.rows:
            if row.kind == kind:
                return row
        raise KeyError(f"no row {kind!r}; known: {[r.kind for r in self.rows]}")

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return asdict(self)


def is_success(trajectory: Trajectory) -> bool:
    """Return whether a scored trajectory succeeded: its "success" part, or a total above 0.5 if the reward has no such
    part."""
    return isinstance(trajectory.reward, Scored) and is_right(trajectory.reward)


def is_right(reward: Scored) -> bool:
    """Return whether a reward means success."""
    part = reward.part("success")
    return (reward.total if part is None else part) > 0.5


def had_error(trajectory: Trajectory) -> bool:
    """Return whether a tool call of the trajectory failed: a traceback, malformed arguments, an unknown tool, or text
    that only looks like a call."""
    return any(
        turn.message.tool_errors or any(record.error is not None for record in turn.tool_records)
        for turn in trajectory.turns
    )


def summarise(
    groups: Sequence[TrajectoryGroup], *, name: str, label: str, step: int, decision: Decision | None = None
) -> Summary:
    """Summarise groups in rows per `payload["kind"]` (one row "all" if tasks have no kind).

    With several environments there are rows per environment ("search_qa") and per kind in it ("search_qa/2hop")."""
    several = len({group.task.environment for group in groups}) > 1
    by_kind: dict[str, list[tuple[Task, Sequence[Trajectory]]]] = {}
    num_samples = max(map(count_members, groups), default=1)
    for group in groups:
        kind, environment = group.task.payload.get("kind"), group.task.environment
        keys = [] if kind is None else [f"{environment}/{kind}" if several else str(kind)]
        for key in [*keys, *([environment] if several else []), ALL]:
            by_kind.setdefault(key, []).extend((group.task, episode) for episode in list_episodes(group))
    kinds = [*sorted(k for k in by_kind if k != ALL), ALL]
    rows = tuple(_row(kind, by_kind.get(kind, []), num_samples) for kind in kinds)
    return Summary(name=name, label=label, step=step, rows=rows, decision=decision)


def list_episodes(group: TrajectoryGroup) -> list[Sequence[Trajectory]]:
    """Return the trajectories of the roles that learn, episode by episode; of all roles if none learns (a served
    model)."""
    episodes: dict[int, list[Trajectory]] = {}
    for trajectory in take_measured(group):
        episodes.setdefault(trajectory.id.member, []).append(trajectory)
    return list(episodes.values())


def _row(kind: str, members: Sequence[tuple[Task, Sequence[Trajectory]]], num_samples: int) -> Row:
    """Build the row of episodes, each given with its task."""
    played = [(task, episode) for task, episode in members if any(isinstance(t.reward, Scored) for t in episode)]
    scored = [episode for _, episode in played]
    success = [take_success(episode) for episode in scored]
    clusters = _gather(played, success)
    low, high = compute_clustered_interval([_flatten(cluster) for cluster in clusters])
    counts = _list_counts(num_samples)
    count = max(1, len(scored))
    rewards = [t.reward for episode in scored for t in episode if isinstance(t.reward, Scored)]
    parts: dict[str, list[float]] = {}
    for reward in rewards:
        for part in reward.parts:
            parts.setdefault(part.name, []).append(part.value)
    errored = [share for share, episode in zip(success, scored, strict=True) if any(map(had_error, episode))]
    return Row(
        kind=kind,
        n=sum(map(len, clusters)),
        clusters=len(clusters),
        episodes=len(scored),
        success=sum(success) / count,
        low=low,
        high=high,
        tool_calls=sum(t.num_tool_calls for episode in scored for t in episode) / count,
        response_tokens=sum(t.num_sampled_tokens for episode in scored for t in episode) / count,
        errored=len(errored),
        recovered=sum(errored) / len(errored) if errored else None,
        truncated=sum(any(t.stop.is_truncated for t in episode) for episode in scored) / count,
        invalid=len(members) - len(scored),
        pass_at=tuple(_rate_pass(k, clusters) for k in counts),
        chosen=list_chosen(clusters, counts[1:]),
        reward=math.fsum(reward.total for reward in rewards) / len(rewards) if rewards else None,
        parts={name: math.fsum(values) / len(values) for name, values in sorted(parts.items())},
    )


def _gather(played: Sequence[tuple[Task, Sequence[Trajectory]]], success: Sequence[float]) -> list[list[list[Attempt]]]:
    """The attempts at each task, cluster by cluster."""
    clusters: dict[str, dict[str, list[Attempt]]] = {}
    for (task, episode), share in zip(played, success, strict=True):
        attempts = clusters.setdefault(name_cluster(task), {}).setdefault(task.id, [])
        attempts.append(read_attempt(episode, share))
    return [list(tasks.values()) for tasks in clusters.values()]


def _flatten(cluster: Sequence[Sequence[Attempt]]) -> list[float]:
    return [attempt.success for task in cluster for attempt in task]


def _list_counts(num_samples: int) -> list[int]:
    """Every power of two below the number of samples of a task, and that number; none for one sample."""
    if num_samples == 1:
        return []
    powers = (2**power for power in range(num_samples.bit_length()))
    return sorted({*(power for power in powers if power < num_samples), num_samples})


def _rate_pass(k: int, clusters: Sequence[Sequence[Sequence[Attempt]]]) -> PassAt:
    shares = [
        [
            compute_pass_at(k, num_samples=len(task), num_passed=sum(attempt.success > 0.5 for attempt in task))
            for task in cluster
            if len(task) >= k
        ]
        for cluster in clusters
    ]
    count = sum(map(len, shares))
    low, high = compute_clustered_interval(shares)
    share = math.fsum(value for cluster in shares for value in cluster) / max(1, count)
    return PassAt(k=k, n=count, share=share, low=low, high=high)


def take_success(episode: Sequence[Trajectory]) -> float:
    """Return the share of an episode's scored trajectories that succeeded; one of them must be scored."""
    scored = [is_success(t) for t in episode if isinstance(t.reward, Scored)]
    return sum(scored) / len(scored)
