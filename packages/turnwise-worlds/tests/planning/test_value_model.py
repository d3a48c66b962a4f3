"""A value model: what it is trained on, that it learns, and that the token after a state makes no difference."""

from __future__ import annotations

import torch

from turnwise.core.types import to_ids
from turnwise.testing import build_tiny_model
from turnwise.training.critic import build_critic, score_values
from turnwise_worlds.planning.value_model import Labelled, LearnedValue, fit_value, to_sample
from turnwise_worlds.planning.values import Judged

PACKING = {"micro_batch_tokens": 4096, "shared_prefix": False}


def build():
    return build_critic(
        build_tiny_model(vocab_size=20),
        kind="separate",
        lr=1e-2,
        clip=None,
        coefficient=1.0,
        betas=(0.9, 0.95),
        weight_decay=0.0,
    )


def judge(*token_ids: int) -> Judged:
    return Judged(token_ids=to_ids(token_ids), environment=None, reward=None)


def test_it_learns_the_values_of_states_and_leaves_the_policy_alone() -> None:
    torch.manual_seed(0)
    critic = build()
    value = LearnedValue(critic=critic, packing=PACKING)  # type: ignore[arg-type]
    assert value.score([judge(1, 2, 3)]) == [0.0]
    labelled = [Labelled(token_ids=to_ids([first, 5, 6]), target=float(first % 2)) for first in range(1, 9)]
    losses: list[float] = []
    fit_value(
        critic,
        labelled,
        steps=60,
        batch_size=16,
        seed=0,
        packing=PACKING,  # type: ignore[arg-type]
        report=lambda step, metrics: losses.append(metrics["train/value_loss"].value),
    )
    scores = value.score([judge(first, 5, 6) for first in range(1, 9)])
    assert max(abs(score - each.target) for score, each in zip(scores, labelled, strict=True)) < 0.2
    assert losses[-1] < losses[0] / 10


def test_the_value_of_a_state_is_read_before_whatever_comes_next() -> None:
    critic = build()
    torch.nn.init.normal_(critic.head.weight)
    sample = to_sample(to_ids([4, 5, 6]))
    assert sample.loss_mask.tolist() == [False, False, False, True]
    [[value]], _ = score_values(critic, [sample], micro_batch_tokens=64)
    _, [final] = score_values(critic, [to_sample(to_ids([4, 5]))], micro_batch_tokens=64)
    _, [after] = score_values(critic, [to_sample(to_ids([4, 5, 6]))], micro_batch_tokens=64)
    assert len({float(value), final, after}) == 3
