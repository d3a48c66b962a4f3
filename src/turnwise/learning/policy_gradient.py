"""Reinforcement learning from one batch of groups: scores, credit, columns, optimizer steps of policy and critic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.algorithms.advantages import has_signal
from turnwise.algorithms.credit import TokenField
from turnwise.algorithms.preference.distillation import compute_distillation_advantages
from turnwise.batching.collate import Column
from turnwise.batching.samples import from_turns, to_samples, to_turns, unmask_observations
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError, boundary
from turnwise.core.metrics import Mean, Metric, Sum, merge
from turnwise.core.paths import take_trained, unfold_groups
from turnwise.core.seeds import rng
from turnwise.core.types import Sample, Scored, Trajectory, TrajectoryGroup, to_floats
from turnwise.credit.assignment import (
    Key,
    TurnArrays,
    add_kl_penalty,
    compute_advantages,
    list_paths,
    pad_turns,
    to_credit_trajectories,
)
from turnwise.learning.adaptive import adapt_coefficients, adapts, read_coefficients, set_coefficients
from turnwise.runs.accounting import Account, list_drops, list_truncated
from turnwise.runs.build import load_placed, set_threads
from turnwise.runs.methods import build_credit_method, build_policy_loss, penalises_tokens, takes_token_penalty
from turnwise.runs.policy import Learned, TrainedPolicy, get_packing
from turnwise.store.ledger import DropReason
from turnwise.store.sampled import training_logprobs
from turnwise.training.critic import (
    Critic,
    build_critic,
    compute_explained_variance,
    compute_returns,
    compute_value_columns,
    run_critic_step,
    score_values,
)
from turnwise.training.forward import score_logprobs
from turnwise.training.implicit_reward import (
    ImplicitReward,
    build_implicit_reward,
    run_implicit_reward_step,
    score_implicit_rewards,
)
from turnwise.training.policy_step import run_policy_step
from turnwise.training.squared_mass import score_squared_mass
from turnwise.training.state import Companion

COEFFICIENTS = "coefficients"
"""Where the coefficients that move stand in the learner's memory."""

Attempts = Mapping[Key, Trajectory]
"""Trajectories that were scored, in the order of the groups, without the turns that never train."""


class PolicyGradient:
    """Learns by `credit`, `critic` and `loss`. Implements `Learner`."""

    def __init__(self, policy: TrainedPolicy, reference: Callable[[], PreTrainedModel]) -> None:
        """`reference` gives the policy RL starts from; it is called only where the recipe needs one."""
        self.policy = policy
        self.config = config = policy.config
        self.credit = build_credit_method(config)
        self.loss = build_policy_loss(config)
        self.critic = _build_critic(config, policy.model)
        self.implicit = (
            _build_implicit(config, policy.model) if "implicit_rewards" in self.credit.method.needs else None
        )
        beside = {"critic": self.critic, "implicit": self.implicit}
        self.companions: Mapping[str, Companion] = {name: model for name, model in beside.items() if model is not None}
        self.teacher = load_teacher(config, policy.model)
        self._get_reference = reference
        self._reference: PreTrainedModel | None = None

    @property
    def reference(self) -> PreTrainedModel | None:
        """The policy RL started from; None where nothing ties to it."""
        if self._reference is None and (self.config.loss.kl.coefficient or self.implicit is not None):
            self._reference = self._get_reference()
        return self._reference

    def state_dict(self) -> dict[str, object]:
        """What the credit method remembers, and the coefficients that move."""
        state = self.credit.state_dict()
        return state | {COEFFICIENTS: read_coefficients(self.config)} if adapts(self.config) else state

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the credit method's memory and the coefficients that move."""
        rest = dict(state)
        coefficients = rest.pop(COEFFICIENTS, None)
        if isinstance(coefficients, Mapping):
            self._follow(set_coefficients(self.config, coefficients))
        with boundary(TrainingError, f"the checkpoint's memory of credit.method={self.config.credit.method!r}"):
            self.credit.load_state_dict(rest)

    def _follow(self, config: RunConfig) -> None:
        """Go on with the coefficients of `config`, which is the recipe in everything else."""
        self.config = config
        self.loss = build_policy_loss(config)
        if penalises_tokens(config) and takes_token_penalty(config.credit.method):
            self.credit = build_credit_method(config)

    def learn(
        self, groups: Sequence[TrajectoryGroup], step: int, greedy_rewards: Mapping[str, float], account: Account
    ) -> Learned:
        """See `Learner.learn`."""
        config = self.config
        set_threads(config.train.num_threads)
        attempts: dict[Key, Trajectory] = {
            (group.group_id, t.member): take_trained(t)
            for group in groups
            for t in group.trajectories
            if isinstance(t.reward, Scored)
        }
        started = time.perf_counter()
        outcomes = [group.rewards() for group in unfold_groups(groups, estimates=True)]
        metrics: dict[str, Metric] = {
            "credit/no_signal_groups": Mean.of(float(not has_signal(rewards)) for rewards in outcomes)
        }
        scores, finals = self._score(attempts, metrics)
        if scores:
            metrics["train/scoring_seconds"] = Sum(time.perf_counter() - started)
        advantages, returns = self._credit(groups, attempts, scores, finals, greedy_rewards, metrics)
        truncated = list_truncated(groups, config)
        advantages = {key: credit for key, credit in advantages.items() if key not in truncated}
        returns = {key: found for key, found in returns.items() if key in advantages}
        samples: list[Sample] = []
        columns: dict[str, list[NDArray[np.generic]]] = {}
        for key, credit in advantages.items():
            of_attempt = to_samples(attempts[key], credit)
            samples += of_attempt
            if "old" in scores:
                columns.setdefault("old_logprobs", []).extend(from_turns(attempts[key], scores["old"][key]))
            if returns:
                columns.setdefault("old_values", []).extend(from_turns(attempts[key], scores["values"][key]))
                columns.setdefault("returns", []).extend(from_turns(attempts[key], returns[key]))
        if not config.loss.mask_observations:
            samples = unmask_observations(samples)
        if returns:
            metrics["train/value_explained_variance"] = Mean(
                compute_explained_variance(columns["old_values"], columns["returns"])
            )
        # A batch in which limits ended everything leaves the policy as it is.
        num_updates = config.loss.updates_per_step
        updates = split_updates(len(samples), num_updates, config.run.seed, step) if samples or not truncated else []
        parts = [[samples[i] for i in indices] for indices in updates]
        account(parts, list_drops(groups, advantages, DropReason.NO_CREDIT, truncated=truncated))
        for update, indices in enumerate(updates):
            part = {name: [column[i] for i in indices] for name, column in columns.items()}
            metrics = merge(metrics, self._update(parts[update], part, update))
        if self.critic is not None and not self.critic.is_shared and updates:
            for _ in range(config.critic.epochs):
                metrics = merge(metrics, self._update_critic(self.critic, samples, columns))
        if adapts(config) and samples:
            self._follow(adapt_coefficients(config, metrics, num_samples=len(samples)))
        whole = {(group.group_id, t.member): t for group in groups for t in group.trajectories}
        stored = {
            key: [None if array is None else to_floats(array) for array in pad_turns(credit, whole[key])]
            for key, credit in advantages.items()
        }
        return Learned(metrics=metrics, advantages=stored)

    def _score(
        self, attempts: Attempts, metrics: dict[str, Metric]
    ) -> tuple[dict[str, dict[Key, TurnArrays]], dict[Key, float]]:
        """What the models say about sampled tokens before the step, per turn, where needed; and the value after the
        last token.

        `values`, `old`, `reference`, `teacher`, and `implicit` of a reward model that has just learned from this batch
        (PRIME's order)."""
        config = self.config
        owners = [(key, sample) for key, attempt in attempts.items() for sample in to_samples(attempt)]
        samples = [sample for _, sample in owners]
        packing, temperature = get_packing(config), config.rollout.temperature
        found: dict[str, list[NDArray[np.generic]]] = {}
        finals: dict[Key, float] = {}
        if self.critic is not None:
            found["values"], after = score_values(self.critic, samples, **packing)
            finals = {key: value for (key, _), value in zip(owners, after, strict=True)}
        models = {
            "old": self.policy.model if config.loss.recompute_old else None,
            "reference": self.reference if penalises_tokens(config) or self.implicit is not None else None,
            "teacher": self.teacher if config.loss.teacher.kind == "sampled" else None,
        }
        for name, model in models.items():
            if model is not None:
                found[name] = score_logprobs(model, samples, temperature, **packing)
        if "squared_mass" in self.credit.method.needs:
            found["squared_mass"] = score_squared_mass(self.policy.model, samples, temperature, **packing)
        if self.implicit is not None:
            outcomes = [attempts[key].reward.total for key, _ in owners]  # type: ignore[union-attr]
            learn = partial(run_implicit_reward_step, temperature=temperature, max_grad_norm=config.train.max_grad_norm)
            metrics |= learn(self.implicit, samples, outcomes, found["reference"], **packing)
            found["implicit"] = score_implicit_rewards(
                self.implicit, samples, found["reference"], temperature=temperature, **packing
            )
        by_key: dict[str, dict[Key, TurnArrays]] = {}
        for name, arrays in found.items():
            grouped: dict[Key, list[Any]] = {key: [] for key in attempts}
            for (key, _), array in zip(owners, arrays, strict=True):
                grouped[key].append(array)
            by_key[name] = {key: to_turns(attempts[key], parts) for key, parts in grouped.items()}
        return by_key, finals

    def _credit(
        self,
        groups: Sequence[TrajectoryGroup],
        attempts: Attempts,
        scores: Mapping[str, Mapping[Key, TurnArrays]],
        finals: Mapping[Key, float],
        greedy_rewards: Mapping[str, float],
        metrics: dict[str, Metric],
    ) -> tuple[dict[Key, TurnArrays], dict[Key, TurnArrays]]:
        """Advantages per turn, and returns for the critic (empty without one)."""
        config = self.config
        fields: dict[TokenField, Mapping[Key, TurnArrays]] = {}
        known: dict[str, TokenField] = {
            "values": "values",
            "reference": "reference_logprobs",
            "implicit": "implicit_rewards",
            "squared_mass": "squared_mass",
        }
        for name, field in known.items():
            if name in scores:
                fields[field] = scores[name]
        trajectories = to_credit_trajectories(
            groups, shaping=config.credit.shaping, scores=fields, final_values=finals, greedy_rewards=greedy_rewards
        )
        advantages = compute_advantages(self.credit, groups, trajectories)
        seen = {
            key: found
            for (key, path), found in zip(list_paths(groups), trajectories, strict=True)
            if path.kind == "first"
        }
        returns: dict[Key, TurnArrays] = {}
        if self.critic is not None:
            options = {**self.credit.method.defaults, **config.credit.options}
            if penalises_tokens(config) and takes_token_penalty(config.credit.method):
                options["kl_coefficient"] = config.loss.kl.coefficient
            returns = {key: compute_returns(config.credit.method, options, seen[key]) for key in advantages}
        if penalises_tokens(config):
            metrics["train/kl_reference"] = _mean_gap(attempts, scores["reference"])
            if not takes_token_penalty(config.credit.method):
                advantages = {
                    key: add_kl_penalty(credit, seen[key], config.loss.kl.coefficient)
                    for key, credit in advantages.items()
                }
        if self.teacher is not None and config.loss.teacher.replace_credit:
            advantages = {key: [np.zeros_like(array) for array in credit] for key, credit in advantages.items()}
        if "teacher" in scores:
            metrics["train/teacher_gap"] = _mean_gap(attempts, scores["teacher"])
            advantages = {
                key: self._add_teacher(credit, attempts[key], scores["teacher"][key])
                for key, credit in advantages.items()
            }
        return advantages, returns

    def _add_teacher(self, credit: TurnArrays, attempt: Trajectory, teacher: TurnArrays) -> TurnArrays:
        coefficient = self.config.loss.teacher.coefficient
        with boundary(TrainingError, "loss.teacher"):
            return [
                array
                + compute_distillation_advantages(training_logprobs(turn.completion), scored, coefficient=coefficient)
                for array, turn, scored in zip(credit, attempt.turns, teacher, strict=True)
            ]

    def _update(self, samples: Sequence[Sample], columns: Mapping[str, Column], update: int) -> dict[str, Metric]:
        """One optimizer step of the policy, and of a critic that shares its layers."""
        config, policy = self.config, self.policy
        shared = self.critic if self.critic is not None and self.critic.is_shared else None
        known = {name: column for name, column in columns.items() if name == "old_logprobs"}
        if shared is not None:
            known |= compute_value_columns(columns.get("old_values", []), columns.get("returns", []))
        metrics = run_policy_step(
            policy.model,
            policy.optimizer,
            samples,
            loss=self.loss,
            lr=policy.next_lr(),
            max_grad_norm=config.train.max_grad_norm,
            **get_packing(config),
            columns=known,
            reference=self.reference if self.loss.kl_coefficient else None,
            teacher=self.teacher,
            critic=shared,
        )
        if update:
            # Only the first update sees the weights that sampled; later gaps are learning, not mismatch.
            metrics = {
                name: metric
                for name, metric in metrics.items()
                if not name.startswith(("train/logprob_", "train/effective_share"))
            }
        return metrics

    def _update_critic(
        self, critic: Critic, samples: Sequence[Sample], columns: Mapping[str, Column]
    ) -> dict[str, Metric]:
        known = compute_value_columns(columns.get("old_values", []), columns.get("returns", []))
        return run_critic_step(
            critic, samples, known, max_grad_norm=self.config.train.max_grad_norm, **get_packing(self.config)
        )


def split_updates(count: int, updates: int, seed: int, step: int) -> list[list[int]]:
    """`range(count)` in `updates` parts of nearly equal size, shuffled when there are several. Every index is in
    exactly one part."""
    order = list(range(count))
    if updates == 1:
        return [order]
    rng(seed, "updates", step).shuffle(order)
    return [order[i::updates] for i in range(updates) if order[i::updates]]


def load_teacher(config: RunConfig, student: PreTrainedModel) -> PreTrainedModel | None:
    """The teacher of `loss.teacher`, frozen; None where there is none. Raises ConfigError when its vocabulary has
    another size."""
    if not config.loss.teacher.path:
        return None
    teacher = load_placed(config, Path(config.loss.teacher.path))
    sizes = [model.config.get_text_config().vocab_size for model in (student, teacher)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"loss.teacher.path={config.loss.teacher.path!r} has a vocabulary of {sizes[1]} tokens, the student one "
            f"of {sizes[0]}; "
            "a teacher must share the student's tokenizer"
        )
    return teacher.requires_grad_(False)


def _build_critic(config: RunConfig, model: PreTrainedModel) -> Critic | None:
    critic, train = config.critic, config.train
    if critic.kind == "none":
        return None
    return build_critic(
        model,
        kind=critic.kind,
        lr=critic.lr,
        clip=critic.clip or None,
        coefficient=critic.coefficient,
        betas=(train.beta1, train.beta2),
        weight_decay=train.weight_decay,
    )


def _build_implicit(config: RunConfig, model: PreTrainedModel) -> ImplicitReward:
    train, implicit = config.train, config.credit.implicit
    betas = (train.beta1, train.beta2)
    return build_implicit_reward(
        model, lr=implicit.lr, beta=implicit.beta, betas=betas, weight_decay=train.weight_decay
    )


def _mean_gap(attempts: Attempts, scores: Mapping[Key, TurnArrays]) -> Mean:
    """Mean of sampler minus `scores` log-probabilities over sampled tokens: the k1 estimate of the divergence."""
    gaps = [
        training_logprobs(turn.completion).astype(np.float64) - scored
        for key, attempt in attempts.items()
        for turn, scored in zip(attempt.turns, scores[key], strict=True)
    ]
    joined = np.concatenate([np.zeros(0), *gaps])
    return Mean(float(joined.sum()), float(len(joined)))
