"""Weights in a short format train through float32 masters: nothing is lost between steps, checkpoints and copies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks_world import Case, make_batch, make_samples, train
from safetensors.torch import load_file, save_file

from turnwise.core.errors import TrainingError
from turnwise.core.types import to_floats
from turnwise.models.build import load_model
from turnwise.models.checksums import compute_checksums
from turnwise.training.local import LocalTrainer
from turnwise.training.loss_scale import GROWTH_UPDATES, SCALE, START, find_scale, note_update, scale_loss
from turnwise.training.masters import find_master
from turnwise.training.optimizer import apply_gradients, build_optimizer

SHORT = ("bfloat16", "float16")


def list_bits(trainer: LocalTrainer) -> dict[str, int]:
    """Checksums of the weights, of what the optimizer steps on, and of what it remembers."""
    sums = compute_checksums(trainer.model)
    optimizer = trainer._policy.optimizer
    for name, parameter in trainer.model.named_parameters():
        master = find_master(parameter)
        held = {"master": master.detach(), **optimizer.state.get(master, {})}
        sums |= {f"{name}/{key}": hash(tuple(value.flatten().tolist())) for key, value in held.items()}
    return sums | {"scale": int(find_scale(optimizer) or 0)}


def test_two_small_steps_add_up_where_the_format_alone_would_lose_both() -> None:
    layer = torch.nn.Linear(2, 1, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    optimizer = build_optimizer(layer, lr=2.0**-9, betas=(0.0, 0.0), weight_decay=0.0)
    seen = []
    for _ in range(4):
        # Without memory AdamW moves a weight by its rate. Below 1 numbers of bfloat16 are 2^-8 apart: half of that is
        # a tie, which rounds to 1; twice that is the next number.
        layer.weight.sum().backward()
        update = apply_gradients(layer, optimizer, lr=2.0**-9, max_grad_norm=10.0)
        seen.append([layer.weight[0, 0].item(), round(find_master(layer.weight)[0, 0].item(), 6)])
        assert update.norm == pytest.approx(2**0.5)
    assert seen == [[1.0, 0.998047], [0.99609375, 0.996094], [0.9921875, 0.994141], [0.9921875, 0.992188]]


def test_gradients_of_micro_batches_are_added_in_float32() -> None:
    layer = torch.nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    build_optimizer(layer, lr=1.0, betas=(0.9, 0.95), weight_decay=0.0)
    for factor in (256.0, 1.0, 1.0):  # 256 + 1 is no number of bfloat16: it would stay 256
        (layer.weight.sum() * factor).backward()
    assert layer.weight.grad is None
    assert find_master(layer.weight).grad == 258.0


def test_float32_and_float64_have_no_masters() -> None:
    for dtype in ("float32", "float64"):
        trainer = Case(dtype=dtype).build_local()
        assert all(find_master(parameter) is parameter for parameter in trainer.model.parameters())
        assert find_scale(trainer._policy.optimizer) is None


@pytest.mark.parametrize("dtype", SHORT)
def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(dtype: str, tmp_path: Path) -> None:
    case = Case(dtype=dtype, critic="separate")
    whole = case.build_local()
    for step in (1, 2):
        train(whole, case, step)
    whole.save(tmp_path, {"step": 0})
    resumed = case.build_local(seed=4)
    resumed.load(tmp_path)
    assert list_bits(resumed) == list_bits(whole)
    for step in (3, 4):
        assert train(resumed, case, step).sums == train(whole, case, step).sums
    assert list_bits(resumed) == list_bits(whole)


def test_a_checkpoint_is_a_model_in_its_own_format(tmp_path: Path) -> None:
    case = Case(dtype="bfloat16")
    trainer = case.build_local()
    train(trainer, case, 1)
    trainer.save(tmp_path, {"step": 0})
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {torch.bfloat16}
    assert compute_checksums(load_model(tmp_path, dtype="bfloat16")) == compute_checksums(trainer.model)


def test_a_checkpoint_without_masters_starts_them_at_its_weights(tmp_path: Path) -> None:
    case = Case(dtype="bfloat16")
    trainer = case.build_local()
    train(trainer, case, 1)
    trainer.save(tmp_path, {"step": 0, "optimizer_steps": 1})
    state = load_file(tmp_path / "state.safetensors")
    kept = {
        name: tensor if tensor.ndim == 0 else tensor.bfloat16()
        for name, tensor in state.items()
        if not name.endswith("/master")
    }
    save_file(kept, tmp_path / "state.safetensors", metadata={"counters": "{}"})
    other = case.build_local(seed=3)
    other.load(tmp_path)
    for parameter in other.model.parameters():
        assert torch.equal(find_master(parameter), parameter.float())
    train(other, case, 2)


@pytest.mark.parametrize("dtype", SHORT)
def test_a_step_that_is_taken_back_leaves_the_masters_as_they_were(dtype: str) -> None:
    case = Case(dtype=dtype, num_updates=2)
    trainer = case.build_local()
    train(trainer, case, 1)
    before = list_bits(trainer)
    samples = make_samples(2)
    broken = replace(samples[3], advantages=to_floats(np.full(len(samples[3].advantages), np.inf)))
    with pytest.raises(TrainingError, match="the loss is"):
        trainer.step(make_batch(trainer, case, 2, [*samples[:3], broken, *samples[4:]]))
    assert list_bits(trainer) == before
    put_back = trainer.remember()
    train(trainer, case, 2)
    assert list_bits(trainer) != before
    put_back()
    assert list_bits(trainer) == before


def test_weights_written_by_others_are_what_the_next_step_starts_from() -> None:
    case = Case(dtype="bfloat16")
    one, other = case.build_local(seed=1), case.build_local(seed=2)
    with torch.no_grad():
        for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
            mine.copy_(theirs)
    assert train(one, case, 1).sums == train(other, case, 1).sums


def test_an_overflow_of_float16_changes_nothing_but_the_scale() -> None:
    layer = torch.nn.Linear(2, 1, bias=False, dtype=torch.float16)
    optimizer = build_optimizer(layer, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    assert find_scale(optimizer) == START
    before = layer.weight.detach().clone()
    (layer.weight.sum() * torch.tensor(START)).backward()  # 65536 is more than float16 holds
    update = apply_gradients(layer, optimizer, lr=1e-2, max_grad_norm=1.0)
    assert update.norm is None
    assert torch.equal(layer.weight, before)
    assert find_scale(optimizer) == START / 2
    (layer.weight.sum() * torch.tensor(START / 2)).backward()
    # The gradient of each of two weights is 1 once the scale is divided out.
    assert apply_gradients(layer, optimizer, lr=1e-2, max_grad_norm=10.0).norm == pytest.approx(2**0.5)
    assert not torch.equal(layer.weight, before)


def test_a_scale_grows_after_enough_updates_and_ends_the_run_where_it_cannot_fall() -> None:
    layer = torch.nn.Linear(2, 1, bias=False, dtype=torch.float16)
    optimizer = build_optimizer(layer, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(GROWTH_UPDATES):
        note_update(optimizer, overflowed=False)
    assert find_scale(optimizer) == 2 * START
    optimizer.state[SCALE]["scale"] = torch.tensor(1.0)  # type: ignore[index]
    find_master(layer.weight).grad = torch.full((1, 2), float("inf"))
    with pytest.raises(TrainingError, match="the gradient norm is inf"):
        apply_gradients(layer, optimizer, lr=1e-2, max_grad_norm=1.0)


def test_small_gradients_survive_float16() -> None:
    layer = torch.nn.Linear(1, 1, bias=False, dtype=torch.float16)
    optimizer = build_optimizer(layer, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    # 2^-30 is below the smallest number of float16, 2^-24; times the scale 2^16 it is 2^-14.
    scale_loss(layer.weight.sum() * torch.tensor(2.0**-30), optimizer).backward()
    assert apply_gradients(layer, optimizer, lr=1e-2, max_grad_norm=1.0).norm == 2.0**-30
