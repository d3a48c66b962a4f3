"""Labels of steps, from outcomes: what a reward model learns. Pure.

A label is the target of the state that a turn reached: after its reply, before the environment's answer is replied to.
Every function takes groups of one conversation per trajectory and returns their attempts, each with a label per turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.paths import first_path, split_paths
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.evaluation.summary import is_success
from turnwise_rewards.reward_models.quality import compute_quality


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """One attempt with a label per turn."""

    trajectory: Trajectory
    """The attempt alone, without continuations."""
    labels: tuple[float | None, ...]
    """`[T]`, in [0, 1]; None where the method gives a turn none."""

    @property
    def num_labels(self) -> int:
        """Number of turns with a label."""
        return sum(label is not None for label in self.labels)


def label_outcomes(groups: Sequence[TrajectoryGroup]) -> list[Labelled]:
    """Label the last turn only, with 1 for success, else 0: an outcome reward model (arXiv 2110.14168).

    Deviation: the paper trains its verifier at every token of a solution; with labels at every turn this is
    `label_returns` with gamma 1 where no state is met twice."""
    return [
        Labelled(trajectory=t, labels=(*[None] * (len(t.turns) - 1), float(is_success(t)))) for t in _attempts(groups)
    ]


def label_continuations(groups: Sequence[TrajectoryGroup], *, hard: bool) -> list[Labelled]:
    """Label a turn by how the continuations from the state that it reached ended (Math-Shepherd, arXiv 2312.08935).

    Soft, equation 4: the share of right ones, an unbiased estimate of the probability to succeed from there under the
    policy that continued. Hard, equation 3: 1 if any was right, which is biased upwards. The last turn has the
    attempt's own outcome. A turn from which every continuation failed to be scored has no label.

    Raises DataError if no trajectory has a continuation: the environment cannot fork, or none were sampled."""
    whole = _forked(groups)
    if whole and not any(ending.kind == "estimate" for t in whole for ending in t.endings):
        raise DataError(
            f"trajectory {whole[0].id} has no continuations, so its steps have no label; sample them in an environment "
            "that can fork (credit.method = 'vine'), or use labels 'outcome' or 'returns'"
        )
    labelled = []
    for trajectory in whole:
        ends = list_continuations(trajectory)
        labels = [share_right(right, hard=hard) for right in ends[1:]]
        labelled.append(
            Labelled(trajectory=first_path(trajectory), labels=(*labels, float(is_success(first_path(trajectory)))))
        )
    return labelled


PROGRESS = 0.8
"""Least share of the value that a right step keeps, as in GenPRM."""


def label_progress(groups: Sequence[TrajectoryGroup]) -> list[Labelled]:
    """Label a turn 1 if it kept the value, else 0: relative progress of GenPRM (arXiv 2504.00891, section 3.2).

    A turn is right if the share of right continuations from the state after it is at least `PROGRESS` times that from
    the state before it; after the last turn it is the attempt's outcome. A turn before which no continuation was right
    has no label. Raises as `label_continuations` does."""
    labelled = []
    for each, whole in zip(label_continuations(groups, hard=False), _forked(groups), strict=True):
        before = [share_right(right, hard=False) for right in list_continuations(whole)]
        pairs = zip(before, each.labels, strict=True)
        labels = [None if not b or a is None else float(a >= PROGRESS * b) for b, a in pairs]
        labelled.append(Labelled(trajectory=each.trajectory, labels=tuple(labels)))
    return labelled


def list_continuations(trajectory: Trajectory) -> list[list[bool]]:
    """Return, per turn of the attempt, whether each scored continuation from the state before it succeeded."""
    paths = split_paths(trajectory)
    ends: list[list[bool]] = [[] for _ in paths[0].turns]
    for path in paths[1:]:
        if path.kind == "estimate" and isinstance(path.trajectory.reward, Scored):
            ends[path.num_shared].append(is_success(path.trajectory))
    return ends


def share_right(right: Sequence[bool], *, hard: bool) -> float | None:
    """Return the share of right continuations, or 1 if there is any, where `hard`; None without continuations."""
    if not right:
        return None
    return float(any(right)) if hard else sum(right) / len(right)


def label_returns(groups: Sequence[TrajectoryGroup], *, gamma: float = 1.0) -> list[Labelled]:
    """Label a turn with the mean return over all turns with the same task, state and reply (AgentPRM, arXiv 2502.10325,
    algorithm 1): a Monte-Carlo estimate of Q(s, a) that needs no continuations.

    States are those of `Turn.state`. Deviation: the return of turn t is `gamma^(T-1-t)` times the outcome, as the
    definition of Q requires; the released code discounts by gamma^t, counted from the start, so that the last step,
    which is nearest to the reward, counts least.

    Raises DataError for a turn without a state."""
    attempts = _attempts(groups)
    returns, keys = [], []
    for attempt in attempts:
        count = len(attempt.turns)
        for place, turn in enumerate(attempt.turns):
            if turn.state is None:
                raise DataError(
                    f"turn {place} of trajectory {attempt.id} has no state; define state_hash() on the environment, or "
                    "use other labels than 'returns'"
                )
            returns.append(gamma ** (count - 1 - place) * float(is_success(attempt)))
            keys.append((attempt.task_id, turn.state, turn.message.text))
    means = iter(average_equal(keys, returns))
    return [Labelled(trajectory=t, labels=tuple(next(means) for _ in t.turns)) for t in attempts]


def average_equal(keys: Sequence[object], values: Sequence[float]) -> list[float]:
    """Return for each value the mean of all values with an equal key."""
    sums: dict[object, tuple[float, int]] = {}
    for key, value in zip(keys, values, strict=True):
        total, count = sums.get(key, (0.0, 0))
        sums[key] = (total + value, count + 1)
    return [sums[key][0] / sums[key][1] for key in keys]


def label_quality(groups: Sequence[TrajectoryGroup]) -> list[Labelled]:
    """Label a turn with the quality value of the state that it reached (ReST-MCTS*, arXiv 2406.03816), in the tree of
    the attempt and its continuations; see `compute_quality`. A trajectory in which nothing ended right has none."""
    labelled = []
    for trajectory in _forked(groups):
        paths = split_paths(trajectory)
        right = {path.turns[-1]: is_success(path.trajectory) for path in paths}
        values = compute_quality([turn.parent for turn in trajectory.turns], right)
        labels = tuple(values.get(index) for index in paths[0].turns)
        labelled.append(Labelled(trajectory=paths[0].trajectory, labels=labels))
    return labelled


LABELS: Mapping[str, Callable[[Sequence[TrajectoryGroup]], list[Labelled]]] = {
    "outcome": label_outcomes,
    "soft": lambda groups: label_continuations(groups, hard=False),
    "hard": lambda groups: label_continuations(groups, hard=True),
    "returns": label_returns,
    "quality": label_quality,
    "progress": label_progress,
}
"""Every method by name, as the command line knows it."""
FORKS = frozenset({"soft", "hard", "quality", "progress"})
"""Methods that read continuations."""


def label_groups(groups: Sequence[TrajectoryGroup], method: str) -> list[Labelled]:
    """Label the scored attempts of groups. Raises ConfigError for an unknown method, DataError where a trajectory has
    several conversations, or nothing could be labelled."""
    if method not in LABELS:
        raise ConfigError(f"labels={method!r} is unknown; use one of {', '.join(LABELS)}")
    labelled = [each for each in LABELS[method](groups) if each.num_labels]
    if not labelled:
        raise DataError(
            f"labels={method!r}: none of {sum(len(group.trajectories) for group in groups)} trajectories has a step to "
            "label; sample more tasks, or a policy that sometimes succeeds"
        )
    for each in labelled:
        check_one_conversation(each.trajectory)
    return labelled


def check_one_conversation(trajectory: Trajectory) -> None:
    """Raise DataError for a trajectory whose turns are not one conversation, which a reward model reads from its
    beginning."""
    if any(turn.parent != (index - 1 if index else None) for index, turn in enumerate(trajectory.turns)):
        raise DataError(
            f"trajectory {trajectory.id} has several conversations or branches; a reward model reads attempts of one"
        )


def _forked(groups: Sequence[TrajectoryGroup]) -> list[Trajectory]:
    """Scored attempts with their continuations."""
    return [t for group in groups for t in group.trajectories if isinstance(t.reward, Scored) and t.turns]


def _attempts(groups: Sequence[TrajectoryGroup]) -> list[Trajectory]:
    """Scored attempts alone."""
    return [first_path(trajectory) for trajectory in _forked(groups)]
