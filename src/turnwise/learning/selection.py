"""Learning from the best samples: rejection sampling, and preference pairs of whole attempts or single steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.algorithms.advantages import has_signal
from turnwise.algorithms.preference.pairs import mine_outcome_pairs, mine_step_pairs
from turnwise.algorithms.preference.rejection import compute_rest_thresholds, select_best_of_n
from turnwise.batching.samples import from_turns, take_scored, to_samples
from turnwise.config.run import RunConfig
from turnwise.core.batch import Assignment, Columns, Pair, StepReport, TrainingBatch, Wanted
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Mean, Sum
from turnwise.core.types import BoolArray, DropReason, Sample, Trajectory, TrajectoryGroup, TrajectoryId, to_mask
from turnwise.learning.drops import list_drops


class _Memoryless:
    """A learner without scores and without memory."""

    wanted: frozenset[Wanted] = frozenset()

    def follow(self, report: StepReport) -> None:
        """Nothing adapts."""

    def state_dict(self) -> dict[str, object]:
        """Nothing is remembered."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Raises TrainingError for a state that holds something."""
        if state:
            raise TrainingError(
                f"the checkpoint remembers {sorted(state)}, and train.algorithm is one that remembers nothing; "
                "resume with the recipe that wrote it"
            )


class RejectionLearner(_Memoryless):
    """Best of n, kept above a bar, fine-tuned on; the next step samples from the better policy (ReST).

    Implements `Learner`.
    """

    def __init__(self, config: RunConfig) -> None:
        self.num_kept = config.rejection.num_kept
        self.thresholds = compute_rest_thresholds(
            first=config.rejection.first_threshold,
            last=config.rejection.last_threshold,
            num_steps=config.rejection.passes,
        )

    def assign(self, groups: Sequence[TrajectoryGroup], columns: Columns, step: int) -> Assignment:
        """See `Learner.assign`: one supervised update per bar; one that nothing passes is empty."""
        passes = [
            [
                group.trajectories[i].id
                for group in groups
                for i in select_best_of_n(group.rewards(), num_kept=self.num_kept, min_reward=threshold)
            ]
            for threshold in self.thresholds
        ]
        pool = _SamplePool(take_scored(groups))
        updates = tuple(tuple(index for name in chosen for index in pool.take(name)) for chosen in passes)
        kept = {name for chosen in passes for name in chosen}
        return Assignment(
            batch=TrainingBatch(step=step, objective="supervised", samples=tuple(pool.samples), updates=updates),
            drops=tuple(list_drops(groups, kept, DropReason.NOT_SELECTED)),
            advantages=None,
            metrics={
                "credit/no_signal_groups": _share_without_signal(groups),
                "train/kept_trajectories": Sum(sum(len(chosen) for chosen in passes)),
            },
        )


class PreferenceLearner(_Memoryless):
    """DPO on pairs mined from each batch of groups, tied to the policy training started from. Implements `Learner`."""

    def __init__(self, config: RunConfig) -> None:
        self.preference = config.preference
        self.by_step = config.train.algorithm == "step_dpo"

    def assign(self, groups: Sequence[TrajectoryGroup], columns: Columns, step: int) -> Assignment:
        """See `Learner.assign`: one update on all pairs; it is empty where there is no pair."""
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
                    group.rewards(), min_margin=preference.min_margin, max_pairs=preference.max_pairs
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
    """The samples of a batch: each attempt is flattened when it is first taken, and once."""

    def __init__(self, attempts: Mapping[TrajectoryId, Trajectory]) -> None:
        self.samples: list[Sample] = []
        self._attempts = attempts
        self._indices: dict[TrajectoryId, tuple[int, ...]] = {}

    def take(self, name: TrajectoryId) -> tuple[int, ...]:
        """Indices of the attempt's samples."""
        if name not in self._indices:
            flattened = to_samples(self._attempts[name])
            self._indices[name] = tuple(range(len(self.samples), len(self.samples) + len(flattened)))
            self.samples += flattened
        return self._indices[name]


def mark_step(trajectory: Trajectory, turn: int | None) -> tuple[BoolArray, ...]:
    """Per sample of the trajectory which trained tokens belong to `turn`; all of them for None."""
    marks = [
        np.full(len(t.completion.token_ids), turn is None or index == turn, dtype=np.float64)
        for index, t in enumerate(trajectory.turns)
    ]
    return tuple(to_mask(mark > 0) for mark in from_turns(trajectory, marks))


def _share_without_signal(groups: Sequence[TrajectoryGroup]) -> Mean:
    return Mean.of(float(not has_signal(group.rewards())) for group in groups)
