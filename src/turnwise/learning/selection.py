"""Learning from the best of what was sampled: rejection sampling, and preference pairs of whole attempts or single
steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.advantages import has_signal
from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss
from turnwise.algorithms.preference.pairs import mine_outcome_pairs, mine_step_pairs
from turnwise.algorithms.preference.rejection import compute_rest_thresholds, select_best_of_n
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.batching.samples import from_turns, to_samples
from turnwise.core.metrics import Max, Mean, Metric, Sum, merge
from turnwise.core.types import Trajectory, TrajectoryGroup
from turnwise.runs.accounting import Account, list_drops
from turnwise.runs.build import set_threads
from turnwise.runs.policy import Learned, TrainedPolicy, get_packing
from turnwise.store.ledger import DropReason
from turnwise.training.preference_step import PairFunction, PairSide, SamplePair, run_pair_step
from turnwise.training.sft import run_sft_step
from turnwise.training.state import Companion


class RejectionSampling:
    """Best of n, kept above a bar, fine-tuned on; the next step samples from the better policy (ReST). Implements
    `Learner`."""

    def __init__(self, policy: TrainedPolicy) -> None:
        self.policy = policy
        self.companions: Mapping[str, Companion] = {}
        rejection = policy.config.rejection
        self.thresholds = compute_rest_thresholds(
            first=rejection.first_threshold, last=rejection.last_threshold, num_steps=rejection.passes
        )

    def learn(
        self, groups: Sequence[TrajectoryGroup], step: int, greedy_rewards: Mapping[str, float], account: Account
    ) -> Learned:
        """See `Learner.learn`: one supervised step per bar; a bar that nothing passes changes nothing."""
        config = self.policy.config
        set_threads(config.train.num_threads)
        metrics: dict[str, Metric] = {"credit/no_signal_groups": _share_without_signal(groups)}
        passes = [
            [
                group.trajectories[i]
                for group in groups
                for i in select_best_of_n(group.rewards(), num_kept=config.rejection.num_kept, min_reward=threshold)
            ]
            for threshold in self.thresholds
        ]
        updates = [[sample for trajectory in chosen for sample in to_samples(trajectory)] for chosen in passes]
        kept = {(trajectory.group_id, trajectory.member) for chosen in passes for trajectory in chosen}
        account(updates, list_drops(groups, kept, DropReason.NOT_SELECTED))
        for chosen, samples in zip(passes, updates, strict=True):
            lr = self.policy.next_lr()
            metrics = merge(metrics, {"train/kept_trajectories": Sum(len(chosen)), "train/lr": Max(lr)})
            if not samples:
                continue
            told = run_sft_step(
                self.policy.model,
                self.policy.optimizer,
                samples,
                lr=lr,
                max_grad_norm=config.train.max_grad_norm,
                **get_packing(config),
            )
            metrics = merge(metrics, {"train/loss": told["sft/loss"], "train/seconds": told["sft/seconds"]})
        return Learned(metrics=metrics, advantages=None)

    def state_dict(self) -> dict[str, object]:
        """Nothing is remembered."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Nothing to restore."""


class PreferenceOptimization:
    """DPO on pairs mined from each batch of groups, tied to the policy training started from. Implements `Learner`."""

    def __init__(self, policy: TrainedPolicy, reference: Callable[[], PreTrainedModel]) -> None:
        self.policy = policy
        self.companions: Mapping[str, Companion] = {}
        self.by_step = policy.config.train.algorithm == "step_dpo"
        self._get_reference = reference
        self._reference: PreTrainedModel | None = None

    def learn(
        self, groups: Sequence[TrajectoryGroup], step: int, greedy_rewards: Mapping[str, float], account: Account
    ) -> Learned:
        """See `Learner.learn`: one optimizer step on all pairs; a batch without a pair changes nothing."""
        config = self.policy.config
        set_threads(config.train.num_threads)
        if self._reference is None:
            self._reference = self._get_reference()
        metrics: dict[str, Metric] = {"credit/no_signal_groups": _share_without_signal(groups)}
        pairs = self._mine(groups)
        samples = [sample for pair in pairs for side in (pair.chosen, pair.rejected) for sample in side.samples]
        paired = {(sample.origin.group_id, sample.origin.member) for sample in samples}
        account([samples], list_drops(groups, paired, DropReason.NOT_SELECTED))
        lr = self.policy.next_lr()
        if not pairs:
            return Learned(metrics=metrics | {"train/pairs": Sum(0), "train/lr": Max(lr)}, advantages=None)
        told = run_pair_step(
            self.policy.model,
            self._reference,
            self.policy.optimizer,
            pairs,
            loss=self._loss(),
            temperature=config.rollout.temperature,
            lr=lr,
            max_grad_norm=config.train.max_grad_norm,
            **get_packing(config),
        )
        return Learned(metrics=metrics | told, advantages=None)

    def _loss(self) -> PairFunction:
        preference = self.policy.config.preference

        def compute(
            policy: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, in_step: torch.Tensor, num_pairs: int
        ) -> PairOutput:
            if self.by_step:
                return compute_step_dpo_loss(
                    policy, reference, sequence, in_step, num_pairs=num_pairs, beta=preference.beta
                )
            loss = partial(
                compute_dpo_loss, beta=preference.beta, kind=preference.kind, label_smoothing=preference.label_smoothing
            )
            return loss(policy, reference, sequence, num_pairs=num_pairs)

        return compute

    def _mine(self, groups: Sequence[TrajectoryGroup]) -> list[SamplePair]:
        preference = self.policy.config.preference
        pairs: list[SamplePair] = []
        for group in groups:
            attempts = group.trajectories
            if self.by_step:
                pairs += [
                    SamplePair(
                        chosen=to_side(attempts[p.chosen_member], p.chosen_turn),
                        rejected=to_side(attempts[p.rejected_member], p.rejected_turn),
                    )
                    for p in mine_step_pairs(group, min_margin=preference.min_margin)
                ]
            else:
                pairs += [
                    SamplePair(chosen=to_side(attempts[pair.chosen]), rejected=to_side(attempts[pair.rejected]))
                    for pair in mine_outcome_pairs(
                        group.rewards(), min_margin=preference.min_margin, max_pairs=preference.max_pairs
                    )
                ]
        return [pair for pair in pairs if pair.chosen.samples and pair.rejected.samples]

    def state_dict(self) -> dict[str, object]:
        """Nothing is remembered."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Nothing to restore."""


def to_side(trajectory: Trajectory, turn: int | None = None) -> PairSide:
    """A trajectory as one side of a pair; `turn` is the step that is judged, None judges all of it."""
    marks = [
        np.full(len(t.completion.token_ids), turn is None or index == turn, dtype=np.float64)
        for index, t in enumerate(trajectory.turns)
    ]
    return PairSide(
        samples=tuple(to_samples(trajectory)), in_step=tuple(mark > 0 for mark in from_turns(trajectory, marks))
    )


def _share_without_signal(groups: Sequence[TrajectoryGroup]) -> Mean:
    return Mean.of(float(not has_signal(group.rewards())) for group in groups)
