"""The implicit reward model: 0 at first, learns which attempts succeed, any split, and refuses non-probabilities."""

from typing import Any

import numpy as np
import pytest
import torch

from turnwise.core.errors import TrainingError
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.training.forward import score_logprobs
from turnwise.training.implicit_reward import (
    ImplicitReward,
    build_implicit_reward,
    run_implicit_reward_step,
    score_implicit_rewards,
)

CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}


def make_sample(tokens: list[int]) -> Sample:
    mask = [False, *[True] * (len(tokens) - 1)]
    return Sample(
        token_ids=to_ids(tokens),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(np.zeros(len(tokens))),
        advantages=to_floats(np.zeros(len(tokens))),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id="t"),
        context_mask=to_mask([False] * len(tokens)),
    )


SAMPLES = [make_sample([1, 2, 3]), make_sample([1, 4, 5, 6]), make_sample([1, 7])]
OUTCOMES = [1.0, 0.0, 1.0]


def build() -> tuple[ImplicitReward, list[Any]]:
    policy = build_model("qwen3", CONFIG, vocab_size=20, seed=0)
    reference = score_logprobs(policy, SAMPLES, 1.0, micro_batch_tokens=100)
    return build_implicit_reward(policy, lr=1e-2, beta=0.5, betas=(0.9, 0.95), weight_decay=0.0), reference


def learn(model: ImplicitReward, reference: list[Any], tokens: int = 100) -> dict[str, Any]:
    return run_implicit_reward_step(
        model, SAMPLES, OUTCOMES, reference, temperature=1.0, max_grad_norm=1e9, micro_batch_tokens=tokens
    )


def test_it_starts_from_nothing_and_learns_what_succeeds() -> None:
    model, reference = build()
    scores = score_implicit_rewards(model, SAMPLES, reference, temperature=1.0, micro_batch_tokens=100)
    assert [len(s) for s in scores] == [2, 3, 1]
    assert np.concatenate(scores).tolist() == [0.0] * 6
    # sigmoid(0) = 1/2: log 2 for every attempt; a logit of 0 guesses failure, which is right once in three.
    first = learn(model, reference)
    assert first["train/implicit_loss"].value == pytest.approx(np.log(2))
    assert first["train/implicit_accuracy"].value == pytest.approx(1 / 3)
    for _ in range(40):
        last = learn(model, reference)
    assert last["train/implicit_accuracy"].value == 1.0
    scores = score_implicit_rewards(model, SAMPLES, reference, temperature=1.0, micro_batch_tokens=100)
    assert [float(s.sum()) > 0 for s in scores] == [True, False, True]


def test_any_split_gives_the_same_step() -> None:
    stepped = []
    for tokens in (100, 1):
        model, reference = build()
        object.__setattr__(model, "optimizer", torch.optim.SGD(model.module.parameters(), lr=1.0))
        learn(model, reference, tokens)
        stepped.append([p.detach() for p in model.module.parameters()])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*stepped, strict=True))


def test_outcomes_that_are_no_chances_are_refused() -> None:
    model, reference = build()
    with pytest.raises(TrainingError, match=r"rewards from -1.0 to 1.0 are not probabilities"):
        run_implicit_reward_step(
            model, SAMPLES, [1.0, -1.0, 0.0], reference, temperature=1.0, max_grad_norm=1.0, micro_batch_tokens=100
        )
