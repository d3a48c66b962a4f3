"""A run whose updates are below the resolution of its weights ends; one with a reason to stand still goes on."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from ranks_world import ADAM, Case, make_batch, make_samples, train

from turnwise.core.errors import TrainingError
from turnwise.core.types import Sample, to_floats
from turnwise.training.local import LocalTrainer
from turnwise.training.optimizer import Schedule, apply_gradients, build_optimizer, describe_update
from turnwise.training.resolution import NUM_STEPS, ResolutionWatch

FLAT = Schedule(base=1e-2, warmup_steps=0, total_steps=20, decay="none")


def build(case: Case, **schedule: object) -> LocalTrainer:
    """The case's trainer with another schedule."""
    trainer = case.build_local()
    trainer.settings = replace(trainer.settings, schedule=replace(FLAT, **schedule))  # type: ignore[arg-type]
    return trainer


@pytest.mark.parametrize(("dtype", "lr"), [("float32", 1e-12), ("bfloat16", 1e-12), ("float64", 1e-21)])
def test_a_rate_below_the_resolution_ends_the_run_and_says_so(dtype: str, lr: float) -> None:
    case = Case(dtype=dtype)
    trainer = build(case, base=lr)
    for step in range(1, NUM_STEPS + 1):
        assert train(trainer, case, step).metrics["train/changed_share"].value < 0.01
    with pytest.raises(TrainingError, match=rf"below the resolution.*{NUM_STEPS} at train.lr={lr:g}.*{dtype}.*raise"):
        train(trainer, case, NUM_STEPS + 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rates_of_pretrained_models_move_nearly_every_weight(dtype: str) -> None:
    case = Case(dtype=dtype)
    trainer = build(case, base=1e-6)
    for step in range(1, NUM_STEPS + 3):
        metrics = train(trainer, case, step).metrics
        assert metrics["train/changed_share"].value > 0.9, step
        # A step of 1e-6 is some thousandths of what bfloat16 resolves at these weights.
        served = metrics.get("train/served_share")
        assert served is None if dtype == "float32" else served is not None and served.value < 0.1


def test_the_length_of_an_update_is_told_beside_that_of_the_weights() -> None:
    weights = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    model = torch.nn.ParameterList([weights])
    weights.grad = torch.tensor([1.0, 0.0])
    # Plain descent at 0.5: the update is [-0.5, 0], the weights have length 5.
    update = apply_gradients(model, torch.optim.SGD([weights], lr=0.5), lr=0.5, max_grad_norm=10.0)
    metrics = describe_update(update, update.totals)
    assert metrics["train/relative_update"].value == 0.1
    assert metrics["train/changed_share"].value == 1.0


def silence(samples: list[Sample], advantage: float = 0.0) -> list[Sample]:
    return [replace(s, advantages=to_floats(np.full(len(s.advantages), advantage) * s.loss_mask)) for s in samples]


def test_steps_without_a_gradient_do_not_count() -> None:
    case = Case()
    trainer = build(case, base=1e-12)
    for step in range(1, 3 * NUM_STEPS):
        report = trainer.step(make_batch(trainer, case, step, silence(make_samples(step))))
        assert "train/changed_share" not in report.metrics


def test_a_warm_up_from_nothing_and_the_end_of_a_decay_do_not_count() -> None:
    case = Case()
    # A thousandth of a thousandth: the first steps are at 1e-13 and the last ones of the cosine too.
    for schedule in ({"warmup_steps": 10**9}, {"decay": "cosine", "total_steps": 1}):
        trainer = build(case, base=1e-4, **schedule)
        for step in range(1, NUM_STEPS + 3):
            train(trainer, case, step)


def test_a_policy_with_nothing_left_to_learn_may_stand_still() -> None:
    watch = ResolutionWatch()
    note = partial(watch.note, driven=1000.0, lr=1e-6, peak_lr=1e-6, option="train.lr", dtype="float32")
    note(share=1.0, norm=1.0)
    for _ in range(2 * NUM_STEPS):
        note(share=0.0, norm=0.01)
    watch.check()
    for _ in range(NUM_STEPS):
        note(share=0.0, norm=0.5)
    with pytest.raises(TrainingError):
        watch.check()
    note(share=0.5, norm=0.5)
    watch.check()


def test_the_share_is_of_weights_with_a_gradient() -> None:
    layer = torch.nn.Embedding(10, 4)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    optimizer = build_optimizer(layer, lr=1e-2, **ADAM)
    layer(torch.tensor([3, 5])).sum().backward()
    update = apply_gradients(layer, optimizer, lr=1e-2, max_grad_norm=1.0)
    assert (update.changes.changed, update.changes.driven) == (8, 8)  # two rows of four
    layer(torch.tensor([3, 5])).sum().backward()
    # The numbers below 1 are 2^-24 = 6e-8 apart.
    update = apply_gradients(layer, optimizer, lr=1e-9, max_grad_norm=1.0)
    assert (update.changes.changed, update.changes.driven) == (0, 8)


def test_the_warm_up_is_watched_too() -> None:
    case = Case()
    trainer = case.build_local()
    trainer.settings = replace(trainer.settings, warmup=replace(FLAT, base=1e-12))
    batch = replace(make_batch(case.build_local(), case, 1), objective="warmup")
    for _ in range(NUM_STEPS):
        trainer.step(batch)
    with pytest.raises(TrainingError, match=r"sft\.lr=1e-12"):
        trainer.step(batch)
