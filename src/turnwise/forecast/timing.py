"""Predict the seconds of an RL step from a recipe's numbers and the speed of this machine, without torch.

Counted are the products of matrices and attention, of engine and trainer, and the optimizer's step. Not counted: tools,
environments, the interpreter's time per call (which dominates below a few million parameters), and waiting."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.config.loss import LossSection
from turnwise.forecast.settings import ForecastSettings
from turnwise.models.shape import ModelShape, read_policy_shape
from turnwise.models.speed import Speed


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTokens:
    """The tokens of an RL step."""

    prompt: int
    """Computed by the engine without being sampled."""
    sampled: int
    computed: int
    """Computed by the trainer: what groups share counts once, if `train.shared_prefix` is set."""
    context: int
    """Tokens a token attends to, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one RL step."""

    sampling: float
    training: float


def predict_step(
    shape: ModelShape, speed: Speed, tokens: StepTokens, *, num_scorings: int = 0, num_epochs: int = 1
) -> StepTime:
    """Seconds of a step of `num_epochs` over its tokens; `num_scorings` are further forward passes over all of them
    (old policy, reference)."""
    head = shape.vocab_size * shape.hidden_size
    # Two operations per number of a matrix; attention multiplies twice with every key.
    attention = 4 * shape.num_layers * shape.num_heads * shape.head_dim * tokens.context
    body = 2 * (shape.num_linear - head) + attention
    forward = tokens.computed * body + tokens.sampled * 2 * head
    passes = 3 * num_epochs + num_scorings  # a backward pass costs two forward passes
    # A prompt is computed in large batches, at about the speed of training.
    prefill, decode = tokens.prompt * body, tokens.sampled * (body + 2 * head)
    return StepTime(
        sampling=prefill / speed.training + decode / speed.sampling,
        training=passes * forward / speed.training + shape.num_parameters / speed.optimizer,
    )


def count_scorings(loss: LossSection) -> int:
    """Passes over all tokens that a step needs besides its own."""
    return (loss.recompute_old is True) + bool(loss.kl.coefficient)


def count_tokens(settings: ForecastSettings) -> StepTokens:
    """The most tokens that a step of the recipe can have: every trajectory uses its whole budget."""
    rollout = settings.rollout
    sampled = min(rollout.max_tokens - 1, rollout.max_turns * rollout.max_turn_tokens)
    opening = rollout.max_tokens - sampled
    groups, members = rollout.tasks_per_step, rollout.group_size
    shared = opening + members * sampled
    return StepTokens(
        prompt=groups * opening,
        sampled=groups * members * sampled,
        computed=groups * (shared if settings.train.shared_prefix else members * rollout.max_tokens),
        context=rollout.max_tokens // 2,
    )


def plan_time(settings: ForecastSettings, speed: Speed) -> StepTime | None:
    """Seconds of an RL step at most; None if the sizes of the model are unknown."""
    shape = read_policy_shape(settings.model, vocab_size=settings.vocab_size)
    if shape is None:
        return None
    loss = settings.loss
    tokens, num_scorings = count_tokens(settings), count_scorings(loss)
    return predict_step(shape, speed, tokens, num_scorings=num_scorings, num_epochs=loss.epochs)
