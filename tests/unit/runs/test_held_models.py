"""The bytes of weights that a plan counts against those of the tensors that a run really holds."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.building.sizes import measure_recipe
from turnwise.building.trainer import build_local_trainer
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.types import Origin, Sample, TrajectoryId, to_floats, to_ids, to_mask
from turnwise.forecast.memory import MemoryPlan, plan_memory
from turnwise.models.build import build_model
from turnwise.runs.build import build_system

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"


def read_recipe(*overrides: str) -> RunConfig:
    return load_config([TINY], ["tokenizer.num_texts=100", "train.micro_batch_tokens=1024", *overrides])


@pytest.fixture(autouse=True)
def only_what_a_test_makes() -> Iterator[None]:
    """`gc.get_objects` then lists what the test itself makes, not the millions of objects of all imported packages."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def list_tensors() -> dict[int, int]:
    """Bytes of the parameters that are alive, by the address of their memory."""
    gc.collect()
    alive = [each for each in gc.get_objects() if isinstance(each, torch.nn.Parameter) and each.device.type == "cpu"]
    return {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in alive}


def plan(config: RunConfig) -> MemoryPlan:
    resolved = resolve(config)
    memory = plan_memory(read_forecast_settings(resolved), shapes=measure_recipe(config, resolved.copies))
    assert memory is not None
    return memory


def count_held(config: RunConfig) -> tuple[int, int]:
    """Bytes of weights that a run of the recipe holds when RL has begun, and those of optimizers' copies of weights."""
    system = build_system(config, training=True)
    trainer = build_local_trainer(resolve(config), system.model, system.tokenizer)
    trainer.score([], frozenset())
    held = list_tensors()
    modules = [each for each in gc.get_objects() if isinstance(each, torch.nn.Module)]
    in_models = {
        parameter.untyped_storage().data_ptr() for module in modules for parameter in module.parameters(recurse=False)
    }
    del modules
    weights = sum(size for at, size in held.items() if at in in_models)
    assert system.served is not None
    assert trainer is not None
    return weights, sum(held.values()) - weights


def with_vocabulary(config: RunConfig, size: int) -> RunConfig:
    return config.model_copy(update={"tokenizer": config.tokenizer.model_copy(update={"vocab_size": size})})


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ([], ["policy"]),
        (["schedule.max_staleness=1"], ["policy", "served copy"]),
        (["loss.kl.coefficient=0.01"], ["policy", "reference"]),
        (["credit.method=prime"], ["policy", "reference", "implicit reward model"]),
        (["credit.method=gae", "critic.kind=head"], ["policy", "critic"]),
        (["credit.method=gae", "critic.kind=separate"], ["policy", "critic"]),
        (
            ["schedule.max_staleness=2", "credit.method=PRIME", "model.dtype=bfloat16"],
            ["policy", "served copy", "reference", "implicit reward model"],
        ),
        (["train.algorithm=dpo"], ["policy", "reference"]),
        (["model.lora.rank=4", "loss.kl.coefficient=0.01"], ["policy", "reference"]),
        (
            ["model.lora.rank=4", "credit.method=gae", "critic.kind=separate", "schedule.max_staleness=1"],
            ["policy", "served copy", "critic"],
        ),
        (["model.config.tie_word_embeddings=false", "credit.method=gae", "critic.kind=separate"], ["policy", "critic"]),
    ],
)
def test_planned_weights_are_the_ones_that_are_held(overrides: list[str], names: list[str]) -> None:
    config = read_recipe("model.config.vocab_size=1100", *overrides)
    memory = plan(config)
    assert [name for name, _ in memory.models] == names
    weights, masters = count_held(config)
    assert memory.weights == weights
    # Of the states of the optimizer, what it steps on instead of the weights.
    has_masters = config.model.dtype == "bfloat16"
    assert bool(masters) == has_masters
    if has_masters:
        numbers = 2 * dict(memory.models)["policy"] // 2  # the policy's and the implicit reward model's
        assert masters == 4 * numbers
        assert memory.optimizer == numbers * (4 + 8) + 4 * numbers // 2


def test_a_teacher_has_its_own_sizes(tmp_path: Path) -> None:
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2}
    build_model("llama", sizes, vocab_size=1100, seed=0).save_pretrained(tmp_path)
    config = read_recipe("model.config.vocab_size=1100", f"loss.teacher.path={tmp_path}")
    memory = plan(config)
    # Embedding and output 2 x 1,100 x 24; a layer 4 x 24 x 24 and 3 x 24 x 40, two norms of 24; and the last norm.
    assert dict(memory.models)["teacher"] == 4 * (2 * 1100 * 24 + 3 * (4 * 576 + 3 * 960 + 48) + 24)
    assert memory.weights == count_held(config)[0]


def make_sample(number: int) -> Sample:
    trained = np.arange(12) >= 6
    return Sample(
        token_ids=to_ids(np.arange(12) + number),
        loss_mask=to_mask(trained),
        behavior_logprobs=to_floats(np.where(trained, -1.0, 0.0)),
        advantages=to_floats(np.where(trained, 1.0, 0.0)),
        version_first=0,
        version_last=0,
        origin=Origin(trajectory=TrajectoryId(draw=number, member=0), task_id="t"),
        context_mask=to_mask(np.zeros(12, bool)),
    )


@pytest.mark.parametrize(
    ("overrides", "num_updates", "expected"),
    [
        ([], 1, 0),
        (["loss.updates_per_step=2"], 2, 1),
        (["credit.method=prime"], 1, 1),
        (["credit.method=prime", "loss.updates_per_step=2"], 2, 2),
    ],
)
def test_what_a_step_takes_back_is_planned(
    overrides: list[str], num_updates: int, expected: int, monkeypatch: Any
) -> None:
    """Snapshots that live at once at the end of a step, in units of a model's weights and two moments."""
    from turnwise.core.batch import TrainingBatch
    from turnwise.training import snapshot

    config = read_recipe("model.config.vocab_size=1100", *overrides)
    plain = read_recipe("model.config.vocab_size=1100")
    policy = dict(plan(config).models)["policy"]
    assert plan(config).training - plan(plain).training == expected * 3 * policy
    system = build_system(config, training=True)
    trainer = build_local_trainer(resolve(config), system.model, system.tokenizer)
    samples = tuple(map(make_sample, range(4)))
    sizes: list[int] = []

    def count_snapshots() -> int:
        alive = [each for each in gc.get_objects() if isinstance(each, snapshot.Snapshot)]
        tensors = [t for each in alive for weights in each._weights for t in weights]
        tensors += [
            t
            for each in alive
            for moments in each._moments
            for state in moments.values()
            for t in state.values()
            if torch.is_tensor(t) and t.ndim
        ]
        return sum(t.numel() * t.element_size() for t in tensors)

    train = trainer._train

    def count_and_train(*given: Any) -> Any:
        sizes.append(count_snapshots())
        return train(*given)

    monkeypatch.setattr(trainer, "_train", count_and_train)
    for step in (1, 2):
        wanted: Any = frozenset({"implicit_rewards"}) if resolve(config).copies.learns_rewards else frozenset()
        trainer.score(samples, wanted, outcomes=[1.0, 0.0, 1.0, 0.0])
        updates = tuple(tuple(range(part, 4, num_updates)) for part in range(num_updates))
        trainer.step(TrainingBatch(step=step, objective="policy_gradient", samples=samples, updates=updates))
    assert sizes[-1] == pytest.approx(expected * 3 * policy, rel=1e-3)
