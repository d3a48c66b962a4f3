"""A reward model: the critic of `training` read after every reply, as a probability."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.batching.collate import Packing, iterate_micro_batches
from turnwise.core.errors import DataError, TrainingError
from turnwise.core.seeds import rng
from turnwise.core.types import Origin, Sample, Trajectory, to_floats, to_ids, to_mask
from turnwise.models.rows import find_device
from turnwise.training.critic import Critic, build_critic, compute_hidden, score_values
from turnwise.training.loss_scale import scale_loss
from turnwise.training.optimizer import apply_gradients
from turnwise_rewards.reward_models.labels import Labelled, check_one_conversation

Kind = Literal["outcome", "process"]
MAX_GRAD_NORM = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewardModel:
    """A value head on layers that read conversations of one tokenizer."""

    kind: Kind
    """"outcome": trained on ends only, so that its scores of earlier turns mean nothing. "process": on every turn."""
    critic: Critic
    tokenizer: PreTrainedTokenizerBase
    packing: Packing
    name: str
    """What messages call it: the folder it was read from, or how it was made."""


def start_reward_model(
    policy: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, kind: Kind, lr: float, packing: Packing
) -> RewardModel:
    """Begin with a copy of the policy's layers and a head of zeros: every score is 0.5."""
    critic = build_critic(
        policy, kind="separate", lr=lr, clip=None, coefficient=1.0, betas=(0.9, 0.999), weight_decay=0.0
    )
    return RewardModel(kind=kind, critic=critic, tokenizer=tokenizer, packing=packing, name="the new reward model")


def score_turns(model: RewardModel, trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Return the model's probability of success after every turn, `[T]` per trajectory; empty for one without turns.

    Raises DataError naming trajectory and turn for a score that is not finite, and for several conversations."""
    played = [trajectory for trajectory in trajectories if trajectory.turns]
    for trajectory in played:
        check_one_conversation(trajectory)
    logits = iter(score_values(model.critic, list(map(to_sample, played)), **model.packing)[0] if played else [])
    scores = [[_squash(float(logit)) for logit in next(logits)] if t.turns else [] for t in trajectories]
    for trajectory, row in zip(trajectories, scores, strict=True):
        for index, score in enumerate(row):
            if not math.isfinite(score):
                raise DataError(
                    f"{model.name} scores turn {index} of trajectory {trajectory.id} with {score}; its weights are "
                    "broken: train it again"
                )
    return scores


def to_sample(trajectory: Trajectory) -> Sample:
    """A conversation as a sample in which the token after each reply trains: the critic's value of that token is the
    value after the reply. After the last one stands a token 0, whose choice makes no difference."""
    pieces, ends, length = [], [], 0
    for turn in trajectory.turns:
        pieces += [turn.context_ids, turn.completion.token_ids]
        length += len(turn.context_ids) + len(turn.completion.token_ids)
        ends.append(length)
    mask = np.zeros(length + 1, np.bool_)
    mask[ends] = True
    nothing = to_floats(np.zeros(length + 1))
    return Sample(
        token_ids=to_ids(np.concatenate([*pieces, [0]])),
        loss_mask=to_mask(mask),
        behavior_logprobs=nothing,
        advantages=nothing,
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=trajectory.id, task_id=trajectory.task_id),
    )


def fit(
    model: RewardModel,
    labelled: Sequence[Labelled],
    *,
    steps: int,
    batch_size: int,
    seed: int,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Minimize the cross-entropy to the labels, which may be shares, over `steps` batches of attempts drawn with
    replacement; the learning rate falls linearly to 0. `report` hears each step's loss in nats.

    Attempts without a label are left out. Raises DataError if none has one and for labels outside [0, 1], TrainingError
    when the loss is not finite."""
    labelled = [each for each in labelled if each.num_labels]
    if not labelled:
        raise DataError("no turn has a label, so there is nothing to learn; label other attempts")
    for each in labelled:
        if not all(label is None or 0 <= label <= 1 for label in each.labels):
            raise DataError(
                f"labels of trajectory {each.trajectory.id} are {list(each.labels)}; a reward model learns "
                "probabilities, in [0, 1]"
            )
    samples = [to_sample(each.trajectory) for each in labelled]
    random = rng(seed, "reward model")
    for step in range(steps):
        chosen = random.choices(range(len(labelled)), k=batch_size)
        critic = replace(model.critic, lr=model.critic.lr * (1 - step / steps))
        loss = run_step(critic, [samples[i] for i in chosen], [labelled[i].labels for i in chosen], model.packing)
        report(step, loss)


def run_step(
    critic: Critic, samples: Sequence[Sample], labels: Sequence[Sequence[float | None]], packing: Packing
) -> float:
    """Take one optimizer step on the mean cross-entropy over labelled turns; returns it. Raises TrainingError, with the
    weights unchanged, if it is not finite."""
    columns = {
        "labels": [np.array([0.0 if label is None else label for label in row]) for row in labels],
        "weights": [np.array([float(label is not None) for label in row]) for row in labels],
    }
    count, total = sum(float(row.sum()) for row in columns["weights"]), 0.0
    for _, batch in iterate_micro_batches(samples, find_device(critic.head), columns, **packing):
        logits = critic.head(compute_hidden(critic, batch)[batch.predict_at])[batch.row, 0].float()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, batch.columns["labels"], weight=batch.columns["weights"], reduction="sum"
        )
        loss = losses / count
        if not bool(torch.isfinite(loss)):
            critic.optimizer.zero_grad(set_to_none=True)
            raise TrainingError(f"the reward model's loss is {float(loss.detach())}; lower its learning rate")
        scale_loss(loss, critic.optimizer).backward()
        total += float(loss.detach())
    apply_gradients(critic.module, critic.optimizer, lr=critic.lr, max_grad_norm=MAX_GRAD_NORM)
    return total


def _squash(logit: float) -> float:
    """The logistic function, also where exp overflows; NaN stays NaN."""
    return 1 / (1 + math.exp(-logit)) if logit >= -700 else math.nan if math.isnan(logit) else 0.0
