"""Several passes over one batch: what they train, and that ratios stay those to the weights before the first."""

from typing import Any

import numpy as np
import pytest
import torch

from turnwise.algorithms.losses.table import build_loss
from turnwise.batching.collate import Packing
from turnwise.building.resolved import resolve
from turnwise.building.trainer import build_schedule
from turnwise.config.load import load_config
from turnwise.core.batch import TrainingBatch
from turnwise.core.errors import ConfigError
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.learning.updates import split_epochs, split_updates
from turnwise.models.build import build_model
from turnwise.training.forward import score_logprobs
from turnwise.training.local import LocalTrainer, TrainerSettings
from turnwise.training.optimizer import Schedule
from turnwise.training.policy_step import PolicyLoss

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
PACKING = Packing(micro_batch_tokens=1000, shared_prefix=False)


def build_trainer() -> LocalTrainer:
    settings = TrainerSettings(
        schedule=Schedule(base=0.05, warmup_steps=0, total_steps=100, decay="none"),
        warmup=Schedule(base=0.05, warmup_steps=0, total_steps=1, decay="none"),
        betas=(0.9, 0.95),
        weight_decay=0.0,
        max_grad_norm=1.0,
        packing=PACKING,
        temperature=1.0,
    )
    model = build_model("qwen3", SIZES, vocab_size=11, seed=0, dtype="float64")
    return LocalTrainer(model, None, settings, loss=PolicyLoss(function=build_loss("ppo"), temperature=1.0))


def make_sample(member: int, advantage: float, behavior: Any) -> Sample:
    mask = np.array([False, False, True, True])
    return Sample(
        token_ids=to_ids([1, 2, 3, 4 + member]),
        loss_mask=to_mask(mask),
        behavior_logprobs=to_floats(np.where(mask, behavior, 0.0)),
        advantages=to_floats(np.where(mask, advantage, 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=0, member=member), task_id="t"),
        context_mask=to_mask(np.zeros(4, bool)),
    )


def score(trainer: LocalTrainer, samples: list[Sample]) -> np.ndarray:
    return np.concatenate(score_logprobs(trainer.model, samples, 1.0, **PACKING)).astype(np.float64)


def test_a_second_pass_takes_its_ratios_to_what_sampled() -> None:
    advantages = (1.0, -2.0)
    trainer = build_trainer()
    blank = [make_sample(i, advantage, -1.0) for i, advantage in enumerate(advantages)]
    old = score(trainer, blank)
    samples = [make_sample(i, a, np.array([0, 0, *old[2 * i : 2 * i + 2]])) for i, a in enumerate(advantages)]

    def take(updates: tuple[tuple[int, ...], ...]) -> dict[str, float]:
        batch = TrainingBatch(step=1, objective="policy_gradient", samples=tuple(samples), updates=updates)
        return {name: metric.value for name, metric in trainer.step(batch).metrics.items()}

    first = take(((0, 1),))
    # On policy every ratio is 1: the mean of -A over four tokens, -(1 + 1 - 2 - 2) / 4.
    assert first["train/policy_loss"] == pytest.approx(0.5, abs=1e-6)
    assert first["train/ratio_max"] == pytest.approx(1.0, abs=1e-6)
    moved = np.exp(score(trainer, samples) - old)
    assert np.abs(moved - 1).max() > 0.05
    # PPO by hand: -min(ratio A, clip(ratio, 0.8, 1.2) A).
    by_token = np.repeat(advantages, 2)
    expected = -np.minimum(moved * by_token, np.clip(moved, 0.8, 1.2) * by_token).mean()
    second = take(((0, 1),))
    assert second["train/policy_loss"] == pytest.approx(expected, abs=1e-5)
    assert (second["train/ratio_min"], second["train/ratio_max"]) == pytest.approx((moved.min(), moved.max()), rel=1e-5)

    # The same two updates as one step of two epochs: the same weights, metrics over both.
    together, trainer = trainer, build_trainer()
    both = take(((0, 1), (0, 1)))
    assert both["train/policy_loss"] == pytest.approx((0.5 + expected) / 2, abs=1e-5)
    assert both["train/trained_tokens"] == 8
    assert both["train/ratio_max"] == pytest.approx(max(1.0, moved.max()), rel=1e-5)
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, together.model.state_dict()[name])


@pytest.mark.parametrize(("count", "updates", "epochs"), [(7, 2, 3), (4, 1, 2), (2, 3, 2), (0, 1, 2)])
def test_every_sample_is_in_one_update_of_every_pass(count: int, updates: int, epochs: int) -> None:
    parts = split_epochs(count, updates, epochs, 3, 5)
    assert sorted(i for part in parts for i in part) == sorted([*range(count)] * epochs)
    size = len(parts) // epochs
    for start in range(0, len(parts), size) if size else ():
        assert sorted(i for part in parts[start : start + size] for i in part) == list(range(count))
    assert parts[:size] == split_updates(count, updates, 3, 5), "the first pass is that of a batch with one"
    if updates == 2:
        assert parts[:size] != parts[size : 2 * size], "every pass is cut anew"


def test_the_schedule_counts_the_passes_and_a_ratio_of_them_is_warm_up() -> None:
    overrides = ["train.steps=10", "loss.epochs=3", "loss.updates_per_step=2", "train.lr=1.0"]
    schedule = build_schedule(resolve(load_config([], overrides)))
    assert (schedule.total_steps, schedule.warmup_steps) == (60, 5)
    # A ratio of 0.04 of 60 steps is 2.4, rounded up: 1/3, 2/3, 1 of the rate.
    schedule = build_schedule(resolve(load_config([], [*overrides, "train.warmup_ratio=0.04"])))
    assert schedule.warmup_steps == 3
    assert [schedule.find_lr(step) for step in range(3)] == pytest.approx([1 / 3, 2 / 3, 1.0])


@pytest.mark.parametrize("algorithm", ["rejection", "dpo"])
def test_epochs_belong_to_policy_gradient(algorithm: str) -> None:
    with pytest.raises(ConfigError, match=r"ignores loss.epochs=2"):
        load_config([], [f"train.algorithm={algorithm}", "loss.epochs=2"])
