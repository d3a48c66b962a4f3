"""Optimizers and schedules by import path: refused before the run where they would not survive a checkpoint."""

import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks_world import Case, train

from turnwise.building.checks import check_methods
from turnwise.building.optimizers import check_optimizer, find_decay, find_optimizer
from turnwise.building.resolved import resolve
from turnwise.building.trainer import build_schedule
from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.models.checksums import compute_checksums
from turnwise.training.local import LocalTrainer
from turnwise.training.optimizer import compute_lr

SGD = ["train.optimizer=torch.optim:SGD", "train.optimizer_options={momentum=0.9}"]
ADAFACTOR = ["train.optimizer=torch.optim:Adafactor"]


class Counting(torch.optim.SGD):
    """Keeps a number of its own beside the tensors."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1


class Hidden(torch.optim.SGD):
    """Keeps in an attribute what its next step depends on."""

    calls = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.calls += 1
        for group in self.param_groups:
            group["lr"] = 1.0 / self.calls
        super().step()


class Elsewhere(torch.optim.SGD):
    """Steps on parameters of its own."""

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__([torch.nn.Parameter(torch.ones(2))], lr=lr)


@pytest.fixture(autouse=True)
def own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own")
    for each in (Counting, Hidden, Elsewhere):
        setattr(module, each.__name__, each)
    module.falling = lambda step, total: 1 - step / total  # type: ignore[attr-defined]
    module.negative = lambda step, total: -1.0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own", module)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["train.optimizer=own:Counting"], "stores 'count' as int; checkpoints contain only tensors"),
        (["train.optimizer=own:Hidden"], "does not continue from its per-parameter state"),
        (["train.optimizer=own:Elsewhere"], "does not update the parameter groups"),
        (["train.optimizer=own:Nothing"], "own has no 'Nothing'; it has Counting"),
        (["train.optimizer=torch.optim:LBFGS"], "LBFGS doesn't support per-parameter options"),
        ([*SGD, "train.optimizer_options={momento=0.9}"], "unexpected keyword argument 'momento'"),
        (["train.optimizer_options={epss=1.0}"], "unexpected keyword argument 'epss'"),
        ([*ADAFACTOR, "train.ranks=2"], r"'row_var' of shape \(4, 1\).*use train.ranks=1"),
        (["train.optimizer=math:pi"], "must be a function"),
        (["train.decay=own:negative"], "returned -1.0 for step 0"),
        (["train.decay=math:cosh"], "math.cosh"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_trains(overrides: list[str], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check_methods(load_config([], overrides))


@pytest.mark.parametrize(
    "overrides", [[], SGD, ADAFACTOR, [*SGD, "train.ranks=2"], ["train.optimizer_options={eps=1e-6}"]]
)
def test_what_can_be_used_passes(overrides: list[str]) -> None:
    check_optimizer(load_config([], overrides))


def build(case: Case, overrides: list[str], seed: int = 0) -> LocalTrainer:
    trainer = case.build_local(seed)
    settings = replace(trainer.settings, build_optimizer=find_optimizer(load_config([], overrides)))
    return LocalTrainer(case.build_policy(seed), None, settings, loss=trainer._loss)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("overrides", [SGD, ADAFACTOR], ids=["sgd", "adafactor"])
def test_a_resumed_run_with_another_optimizer_is_bit_equal(overrides: list[str], dtype: str, tmp_path: Path) -> None:
    case = Case(dtype=dtype)
    whole = build(case, overrides)
    for step in (1, 2):
        train(whole, case, step)
    whole.save(tmp_path, {"step": 0})
    resumed = build(case, overrides, seed=3)
    resumed.load(tmp_path)
    for step in (3, 4):
        assert train(resumed, case, step).sums == train(whole, case, step).sums
    assert compute_checksums(whole.model) != compute_checksums(case.build_policy())


def test_options_reach_the_optimizer_and_weight_decay_is_of_matrices() -> None:
    build_optimizer = find_optimizer(load_config([], SGD))
    assert build_optimizer is not None
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = build_optimizer([{"params": [weight], "weight_decay": 0.0}], 0.5)
    for _ in range(2):
        weight.grad = torch.tensor([1.0])
        optimizer.step()
    # 1 - 0.5 = 0.5; then the momentum is 0.9 + 1 = 1.9: 0.5 - 0.95.
    assert weight.item() == pytest.approx(-0.45)
    assert find_optimizer(load_config([], [])) is None


def test_a_decay_ends_at_its_floor() -> None:
    config = load_config([], ["train.decay=own:falling", "train.min_lr_ratio=0.1", "train.lr=1.0", "train.steps=15"])
    schedule = build_schedule(resolve(config))  # 5 steps of warm-up, 10 after it
    assert [schedule.find_lr(step) for step in (0, 4, 5, 10)] == pytest.approx([0.2, 1.0, 1.0, 0.1 + 0.9 * 0.5])
    assert callable(find_decay(config))
    # A cosine half way is at 1/2, at the end at 0: 0.1 + 0.9 / 2 and 0.1.
    for step, lr in ((50, 0.55), (100, 0.1)):
        assert compute_lr(
            step, base=1.0, warmup_steps=0, total_steps=100, decay="cosine", min_ratio=0.1
        ) == pytest.approx(lr)
