"""Learns from the best samples: rejection sampling, and preference pairs of whole attempts or single steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from turnwise.algorithms.advantages import has_signal
from turnwise.algorithms.preference.pairs import mine_outcome_pairs, mine_step_pairs
from turnwise.algorithms.preference.rejection import compute_rest_thresholds, select_best_of_n
from turnwise.batching.samples import from_turns, take_scored, to_samples
from turnwise.config.selection import PreferenceSection, RejectionSection
from turnwise.core.batch import Assignment, Columns, Pair, StepReport, TrainingBatch, Wanted
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Mean, Sum
from turnwise.core.types import (
    BoolArray,
    DropReason,
    Sample,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    to_mask,
)
from turnwise.learning.drops import list_drops, list_truncated
from turnwise.learning.updates import split_updates


class _Memoryless:
    """A learner without model scores and without state."""

    wanted: frozenset[Wanted] = frozenset()

    def follow(self, report: StepReport) -> None:
        """Do nothing: nothing adapts."""

    def state_dict(self) -> dict[str, object]:
        """Return no state."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Raise TrainingError for a non-empty state."""
        if state:
            raise TrainingError(
                f"the checkpoint contains the state {sorted(state)}, but this train.algorithm has none; resume with "
                "the recipe that wrote it"
            )


class RejectionLearner(_Memoryless):
    """Fine-tunes on the best distinct attempts at each task whose reward reaches a threshold; the next step samples
    from the better policy (RFT, ReST, SWE-smith). Implements `Learner`.

    The policy continues from its present weights; ReST-EM and STaR instead fine-tune the first policy again in each
    round.
    """

    def __init__(
        self, rejection: RejectionSection, *, updates_per_pass: int, seed: int, train_truncated: bool = True
    ) -> None:
        """`updates_per_pass` is the number of optimizer steps per pass; `seed` deals samples to them."""
        self.rejection = rejection
        self.thresholds = compute_rest_thresholds(
            first=rejection.first_threshold, last=rejection.last_threshold, num_steps=rejection.passes
        )
        self._updates_per_pass = updates_per_pass
        self._seed = seed
        self._train_truncated = train_truncated

    def assign(self, groups: Sequence[TrajectoryGroup], columns: Columns, step: int) -> Assignment:
        """See `Learner.assign`: for each threshold as many supervised updates as the recipe says; an update without
        samples is empty."""
        attempts = take_scored(groups)
        truncated = list_truncated(groups, train_truncated=self._train_truncated)
        by_task: dict[str, list[Trajectory]] = {}
        for group in groups:
            scored = [attempts[t.id] for t in group.trajectories if t.id in attempts and t.id not in truncated]
            by_task.setdefault(group.task.id, []).extend(scored)
        passes = [
            [name for candidates in by_task.values() for name in self._select(candidates, threshold)]
            for threshold in self.thresholds
        ]
        pool = _SamplePool(attempts)
        updates = [
            update
            for number, chosen in enumerate(passes)
            for update in self._split([index for name in chosen for index in pool.take(name)], step, number)
        ]
        kept = {name for chosen in passes for name in chosen}
        solved = [candidates for candidates in by_task.values() if any(t.id in kept for t in candidates)]
        reasons = _list_duplicates(by_task, kept) | truncated
        return Assignment(
            batch=TrainingBatch(step=step, objective="supervised", samples=tuple(pool.samples), updates=tuple(updates)),
            drops=tuple(list_drops(groups, kept, DropReason.NOT_SELECTED, other_reasons=reasons)),
            advantages=None,
            metrics={
                "credit/no_signal_groups": _share_without_signal(groups),
                "train/kept_trajectories": Sum(len(kept)),
                "train/solved_tasks": Sum(len(solved)),
            },
        )

    def _select(self, attempts: Sequence[Trajectory], threshold: float) -> list[TrajectoryId]:
        """Return the attempts at one task to train on."""
        kept = select_best_of_n(
            [attempt.credited for attempt in attempts],
            num_kept=self.rejection.num_kept,
            min_reward=threshold,
            contents=[_list_replies(attempt) for attempt in attempts],
        )
        return [attempts[index].id for index in kept]

    def _split(self, samples: Sequence[int], step: int, number: int) -> list[tuple[int, ...]]:
        """Return the updates of one pass, always the same number: the schedule of the learning rate counts on it."""
        wanted = self._updates_per_pass
        parts = split_updates(len(samples), wanted, self._seed, step, number)
        updates = [tuple(samples[i] for i in part) for part in parts]
        return updates + [()] * (wanted - len(updates))


class PreferenceLearner(_Memoryless):
    """Trains DPO on pairs mined from each batch of groups, with the starting policy as reference. Implements
    `Learner`."""

    def __init__(self, preference: PreferenceSection, *, by_step: bool) -> None:
        """`by_step` pairs the steps at which two attempts diverge instead of whole attempts."""
        self.preference = preference
        self.by_step = by_step

    def assign(self, groups: Sequence[TrajectoryGroup], columns: Columns, step: int) -> Assignment:
        """See `Learner.assign`: one update on all pairs, empty if there is no pair."""
        pool = _SamplePool(take_scored(groups))
        pairs = tuple(pair for group in groups for pair in self._mine(group, pool))
        used = {index for pair in pairs for index in (*pair.chosen, *pair.rejected)}
        paired = {pool.samples[index].origin.trajectory for index in used}
        return Assignment(
            batch=TrainingBatch(
                step=step,
                objective="preference",
                samples=tuple(pool.samples),
                updates=(tuple(sorted(used)),),
                pairs=pairs,
            ),
            drops=tuple(list_drops(groups, paired, DropReason.NOT_SELECTED)),
            advantages=None,
            metrics={"credit/no_signal_groups": _share_without_signal(groups)},
        )

    def _mine(self, group: TrajectoryGroup, pool: _SamplePool) -> list[Pair]:
        preference, attempts = self.preference, group.trajectories
        sides: list[tuple[tuple[Trajectory, int | None], tuple[Trajectory, int | None]]]
        if self.by_step:
            sides = [
                ((attempts[p.chosen_member], p.chosen_turn), (attempts[p.rejected_member], p.rejected_turn))
                for p in mine_step_pairs(group, min_margin=preference.min_margin)
            ]
        else:
            sides = [
                ((attempts[p.chosen], None), (attempts[p.rejected], None))
                for p in mine_outcome_pairs(
                    group.credited_rewards(), min_margin=preference.min_margin, max_pairs=preference.max_pairs
                )
            ]
        return [
            Pair(
                chosen=pool.take(chosen.id),
                rejected=pool.take(rejected.id),
                chosen_in_step=mark_step(chosen, chosen_turn),
                rejected_in_step=mark_step(rejected, rejected_turn),
            )
            for (chosen, chosen_turn), (rejected, rejected_turn) in sides
            if chosen.num_sampled_tokens and rejected.num_sampled_tokens
        ]


class _SamplePool:
    """The samples of a batch: each attempt is flattened once, when it is first used."""

    def __init__(self, attempts: Mapping[TrajectoryId, Trajectory]) -> None:
        self.samples: list[Sample] = []
        self._attempts = attempts
        self._indices: dict[TrajectoryId, tuple[int, ...]] = {}

    def take(self, name: TrajectoryId) -> tuple[int, ...]:
        """Return the indices of the attempt's samples."""
        if name not in self._indices:
            flattened = to_samples(self._attempts[name])
            self._indices[name] = tuple(range(len(self.samples), len(self.samples) + len(flattened)))
            self.samples += flattened
        return self._indices[name]


def mark_step(trajectory: Trajectory, turn: int | None) -> tuple[BoolArray, ...]:
    """Mark, for each sample of the trajectory, which trained tokens belong to `turn`; all of them for None."""
    marks = [
        np.full(len(t.completion.token_ids), turn is None or index == turn, dtype=np.float64)
        for index, t in enumerate(trajectory.turns)
    ]
    return tuple(to_mask(mark > 0) for mark in from_turns(trajectory, marks))


def _list_duplicates(
    by_task: Mapping[str, Sequence[Trajectory]], kept: Collection[TrajectoryId]
) -> dict[TrajectoryId, DropReason]:
    """Return the attempts that are not kept and whose replies all equal those of a kept attempt at the same task."""
    duplicates: dict[TrajectoryId, DropReason] = {}
    for attempts in by_task.values():
        contents = {_list_replies(attempt) for attempt in attempts if attempt.id in kept}
        duplicates |= {
            attempt.id: DropReason.DUPLICATE
            for attempt in attempts
            if attempt.id not in kept and _list_replies(attempt) in contents
        }
    return duplicates


def _list_replies(attempt: Trajectory) -> tuple[bytes, ...]:
    """Return the sampled tokens, one reply after another."""
    return tuple(turn.completion.token_ids.tobytes() for turn in attempt.turns)


def _share_without_signal(groups: Sequence[TrajectoryGroup]) -> Mean:
    return Mean.of(float(not has_signal(group.credited_rewards())) for group in groups)
