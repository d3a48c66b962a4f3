"""Steps on pairs: the loss by hand at the start, any split, only the judged step moves, and learning to prefer."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms.preference.dpo import PairOutput, compute_dpo_loss
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.batching.samples import to_samples
from turnwise.core.batch import Pair
from turnwise.core.errors import TrainingError
from turnwise.core.types import (
    Completion,
    FinishReason,
    Sample,
    Scored,
    StopReason,
    Trajectory,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.learning.selection import mark_step
from turnwise.models.build import build_model
from turnwise.training.optimizer import build_optimizer
from turnwise.training.preference_step import PairFunction, run_pair_step

CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}


def build() -> Any:
    return build_model("qwen3", CONFIG, vocab_size=50, seed=0)


def attempt(*replies: list[int]) -> Trajectory:
    turns = tuple(
        Turn(
            parent=index - 1 if index else None,
            context_ids=to_ids([1, 2]),
            completion=Completion(
                token_ids=to_ids(reply),
                logprobs=to_floats(np.full(len(reply), -4.0)),
                finish_reason=FinishReason.STOP,
                version_first=0,
                version_last=0,
            ),
            message=text_message("assistant", ""),
        )
        for index, reply in enumerate(replies)
    )
    return Trajectory(
        id=TrajectoryId(draw=0, member=0),
        task_id="t",
        turns=turns,
        stop=StopReason.DONE,
        reward=Scored(total=1.0),
    )


def dpo(
    policy: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, in_step: torch.Tensor, num_pairs: int
) -> PairOutput:
    return compute_dpo_loss(policy, reference, sequence, num_pairs=num_pairs, beta=0.5)


def step_dpo(
    policy: torch.Tensor, reference: torch.Tensor, sequence: torch.Tensor, in_step: torch.Tensor, num_pairs: int
) -> PairOutput:
    return compute_step_dpo_loss(policy, reference, sequence, in_step, num_pairs=num_pairs, beta=0.5)


Judged = tuple[Trajectory, int | None]
"""An attempt and the turn that is judged; None judges all of it."""
Sides = list[tuple[Judged, Judged]]
"""Pairs, the better attempt first."""

PAIRS: Sides = [
    ((attempt([3, 4], [5]), None), (attempt([3, 4], [6, 7]), None)),
    ((attempt([8]), None), (attempt([9, 10], [11]), None)),
]


def to_pairs(sides: Sides) -> tuple[list[Sample], list[Pair]]:
    """One sample per attempt, two attempts per pair."""
    samples = [sample for pair in sides for trajectory, _ in pair for sample in to_samples(trajectory)]
    pairs = [
        Pair(
            chosen=(2 * number,),
            rejected=(2 * number + 1,),
            chosen_in_step=mark_step(*chosen),
            rejected_in_step=mark_step(*rejected),
        )
        for number, (chosen, rejected) in enumerate(sides)
    ]
    return samples, pairs


def take(sides: Sides, loss: PairFunction, tokens: int, steps: int = 1, lr: float = 1.0) -> tuple[Any, list[Any]]:
    model, reference = build(), build()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    samples, pairs = to_pairs(sides)
    measured = [
        run_pair_step(
            model,
            reference,
            optimizer,
            samples,
            pairs,
            loss=loss,
            temperature=1.0,
            lr=lr,
            max_grad_norm=1e9,
            micro_batch_tokens=tokens,
        )
        for _ in range(steps)
    ]
    return model, measured


def test_at_the_reference_the_loss_is_log_two_and_any_split_steps_alike() -> None:
    whole, measured = take(PAIRS, dpo, 1000)
    assert measured[0]["train/loss"].value == pytest.approx(np.log(2))  # -log sigmoid(0)
    assert measured[0]["train/pair_accuracy"].value == 0.0  # equal implicit rewards prefer nothing
    assert measured[0]["train/pairs"].value == 2
    split, _ = take(PAIRS, dpo, 1)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(whole.parameters(), split.parameters(), strict=True))


def test_pairs_are_learned() -> None:
    _, measured = take(PAIRS, dpo, 1000, steps=40, lr=0.3)
    assert measured[-1]["train/pair_accuracy"].value == 1.0
    assert measured[-1]["train/loss"].value < 0.3


def test_only_the_step_that_is_judged_counts() -> None:
    # The attempts part in turn 1; what comes after it (turn 2) must not matter to step-DPO.
    def pair(after: list[int]) -> tuple[Judged, Judged]:
        return (attempt([3], [5], after), 1), (attempt([3], [6], [12]), 1)

    left, _ = take([pair([13])], step_dpo, 1000)
    right, _ = take([pair([14, 15])], step_dpo, 1000)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(left.parameters(), right.parameters(), strict=True))
    moved, _ = take([pair([13])], dpo, 1000)
    assert not all(torch.allclose(a, b, atol=1e-6) for a, b in zip(left.parameters(), moved.parameters(), strict=True))


def test_no_pair_is_an_error() -> None:
    model = build()
    optimizer = build_optimizer(model, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    step = partial(run_pair_step, loss=dpo, temperature=1.0, lr=1.0, max_grad_norm=1.0, micro_batch_tokens=10)
    with pytest.raises(TrainingError, match=r"lower preference\.min_margin"):
        step(model, model, optimizer, [], [])
