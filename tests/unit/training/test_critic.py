"""The critic: where values are read, both kinds, any split, and its checkpoint."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from turnwise.algorithms.losses.table import build_loss
from turnwise.core.errors import CheckpointError
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.models.build import build_model
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise.training.critic import (
    Critic,
    build_critic,
    compute_value_columns,
    run_critic_step,
    score_values,
)
from turnwise.training.optimizer import build_optimizer
from turnwise.training.policy_step import PolicyLoss, run_policy_step
from turnwise.training.state import load_training_state, save_training_state

VOCAB = 300
CONFIG = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
Kind = Literal["head", "separate"]


def build(seed: int = 0) -> Any:
    return build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=seed)


def critic_of(model: Any, kind: Kind, *, lr: float = 1e-2) -> Critic:
    return build_critic(model, kind=kind, lr=lr, clip=None, coefficient=1.0, betas=(0.9, 0.95), weight_decay=0.0)


def make_sample(tokens: list[int], trained: list[int]) -> Sample:
    mask = np.zeros(len(tokens), bool)
    mask[trained] = True
    return Sample(
        token_ids=to_ids(tokens),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(np.where(mask, -5.0, 0.0)),
        advantages=to_floats(np.zeros(len(tokens))),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=0), task_id="t"),
        context_mask=to_mask(np.zeros(len(tokens), bool)),
    )


SAMPLES = [make_sample([5, 6, 7, 8, 9, 10], [2, 3, 5]), make_sample([11, 12, 13], [1, 2])]


def test_a_value_is_that_of_the_state_before_the_token() -> None:
    model = build()
    critic = critic_of(model, "separate")
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(1))
    values, finals = score_values(critic, SAMPLES, micro_batch_tokens=100)
    assert [len(v) for v in values] == [3, 2]
    # What comes at and after a token cannot change the value before it; what comes before it does.
    changed, _ = score_values(critic, [make_sample([5, 6, 7, 8, 99, 98], [2, 3, 5])], micro_batch_tokens=100)
    np.testing.assert_allclose(changed[0][:2].tolist(), values[0][:2].tolist(), rtol=1e-5)
    assert abs(float(changed[0][2]) - float(values[0][2])) > 1e-4
    # The final value reads the last token too.
    longer, _ = score_values(critic, [make_sample([5, 6, 7, 8, 9, 10, 1], [6])], micro_batch_tokens=100)
    assert float(longer[0][0]) == pytest.approx(finals[0], rel=1e-4)
    one_by_one, _ = score_values(critic, SAMPLES, micro_batch_tokens=1)
    np.testing.assert_allclose(np.concatenate(one_by_one), np.concatenate(values), rtol=1e-5)


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_a_fresh_critic_says_zero_and_learns_its_targets(kind: Kind) -> None:
    model = build()
    before = [p.detach().clone() for p in model.parameters()]
    critic = critic_of(model, kind)
    old_values, _ = score_values(critic, SAMPLES, micro_batch_tokens=100)
    assert np.concatenate(old_values).tolist() == [0.0] * 5
    returns = [np.array([1.0, -1.0, np.nan]), np.array([0.5, 2.0])]
    columns = compute_value_columns(old_values, returns)
    # Four targets: weights of 1/4, and 0 at the token without one.
    assert [w.tolist() for w in columns["value_weights"]] == [[0.25, 0.25, 0.0], [0.25, 0.25]]
    optimizer = build_optimizer(model, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
    loss = PolicyLoss(function=build_loss("gpg"), temperature=1.0)
    for _ in range(150):
        if kind == "separate":
            run_critic_step(critic, SAMPLES, columns, max_grad_norm=1.0, micro_batch_tokens=4)
        else:
            run_policy_step(
                model,
                optimizer,
                SAMPLES,
                loss=loss,
                lr=3e-3,
                max_grad_norm=1.0,
                micro_batch_tokens=4,
                columns=columns,
                critic=critic,
            )
    learned, _ = score_values(critic, SAMPLES, micro_batch_tokens=100)
    targets = np.concatenate(returns)
    np.testing.assert_allclose(np.concatenate(learned)[np.isfinite(targets)], targets[np.isfinite(targets)], atol=0.15)
    if kind == "separate":
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_any_split_gives_the_critic_the_same_step(kind: Kind) -> None:
    columns = compute_value_columns([np.zeros(3), np.zeros(2)], [np.array([1.0, -1.0, 0.3]), np.array([0.5, 2.0])])

    def step(tokens: int) -> list[torch.Tensor]:
        model = build()
        critic = critic_of(model, kind)
        torch.nn.init.ones_(critic.head.weight)
        critic_optimizer = torch.optim.SGD(critic.module.parameters(), lr=1.0)
        object.__setattr__(critic, "optimizer", critic_optimizer)
        if kind == "separate":
            run_critic_step(critic, SAMPLES, columns, max_grad_norm=1e9, micro_batch_tokens=tokens)
            return [p.detach() for p in critic.module.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        loss = PolicyLoss(function=build_loss("gpg"), temperature=1.0)
        run_policy_step(
            model,
            optimizer,
            SAMPLES,
            loss=loss,
            lr=1.0,
            max_grad_norm=1e9,
            micro_batch_tokens=tokens,
            columns=columns,
            critic=critic,
        )
        return [p.detach() for p in (*critic.module.parameters(), *model.parameters())]

    for left, right in zip(step(100), step(1), strict=True):
        assert torch.allclose(left, right, atol=1e-5)


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_a_critic_survives_its_checkpoint_bit_for_bit(tmp_path: Path, kind: Kind) -> None:
    tokenizer = train_tokenizer(["some text"], vocab_size=VOCAB, special_tokens=TAG_SPECIAL_TOKENS)
    columns = compute_value_columns([np.zeros(3), np.zeros(2)], [np.array([1.0, -1.0, 0.3]), np.array([0.5, 2.0])])
    loss = PolicyLoss(function=build_loss("gpg"), temperature=1.0)

    def step(model: Any, optimizer: torch.optim.Optimizer, critic: Critic) -> None:
        if kind == "separate":
            run_critic_step(critic, SAMPLES, columns, max_grad_norm=1.0, micro_batch_tokens=100)
        else:
            run_policy_step(
                model,
                optimizer,
                SAMPLES,
                loss=loss,
                lr=1e-3,
                max_grad_norm=1.0,
                micro_batch_tokens=100,
                columns=columns,
                critic=critic,
            )

    def fresh(seed: int) -> tuple[Any, torch.optim.Optimizer, Critic]:
        model = build(seed)
        return model, build_optimizer(model, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0), critic_of(model, kind)

    one, other = fresh(0), fresh(7)
    step(*one)
    counters = {"step": 1, "optimizer_steps": 1, "version": 1, "tasks": 8, "credit": {"baselines": {"a": 0.5}}}
    save_training_state(tmp_path, one[0], tokenizer, one[1], counters, {"critic": one[2]})
    assert load_training_state(tmp_path, other[0], other[1], {"critic": other[2]}) == counters
    step(*one)
    step(*other)
    for left, right in zip(one[2].module.parameters(), other[2].module.parameters(), strict=True):
        assert torch.equal(left, right)
    (tmp_path / "critic.safetensors").unlink()
    with pytest.raises(CheckpointError, match="cannot read"):
        load_training_state(tmp_path, other[0], other[1], {"critic": other[2]})
