"""Checkpoints on disk: read in one file or in shards, whole or not at all, with everything that they lack listed."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from turnwise.core.errors import CheckpointError
from turnwise.models.build import build_model
from turnwise.testing import build_tiny_model, build_tiny_tokenizer
from turnwise.testing.policies import TINY_CONFIG
from turnwise.training.optimizer import build_optimizer
from turnwise.training.state import load_training_state, load_weights, save_training_state

VOCAB = 300
COUNTERS = {"step": 3}
EMBEDDING = "model.embed_tokens.weight"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A model beside the policy."""

    module: torch.nn.Module
    optimizer: torch.optim.Optimizer


def build_part(module: torch.nn.Module) -> Part:
    return Part(module=module, optimizer=build_optimizer(module, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0))


def train(part: Part) -> None:
    """A step from made-up gradients, so that there are moments."""
    generator = torch.Generator().manual_seed(4)
    for parameter in part.module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    part.optimizer.step()


def hold_same(one: Part, other: Part) -> bool:
    for mine, theirs in zip(one.module.parameters(), other.module.parameters(), strict=True):
        moments = [part.optimizer.state.get(p, {}) for part, p in ((one, mine), (other, theirs))]
        if not torch.equal(mine, theirs) or moments[0].keys() != moments[1].keys():
            return False
        if not all(torch.equal(moments[0][key], moments[1][key]) for key in moments[0]):
            return False
    return all(torch.equal(a, b) for a, b in zip(one.module.buffers(), other.module.buffers(), strict=True))


def save(folder: Path, policy: Part, **companions: Part) -> None:
    folder.mkdir()
    model: Any = policy.module
    save_training_state(folder, model, build_tiny_tokenizer(["a b"]), policy.optimizer, COUNTERS, companions)


def load(folder: Path, policy: Part, **companions: Part) -> dict[str, Any]:
    model: Any = policy.module
    return load_training_state(folder, model, policy.optimizer, companions)


def split(folder: Path, model: PreTrainedModel, size: str = "40KB") -> list[Path]:
    """Write the policy as `save_pretrained` does above 50 GB."""
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, save_original_format=False, max_shard_size=size)
    return sorted(folder.glob("model-*.safetensors"))


def test_a_checkpoint_in_shards_goes_on_as_one_in_a_file(tmp_path: Path) -> None:
    model = build_tiny_model(vocab_size=VOCAB)
    policy = build_part(model)
    train(policy)
    save(tmp_path / "whole", policy)
    shutil.copytree(tmp_path / "whole", tmp_path / "split")
    assert len(split(tmp_path / "split", model)) == 3
    resumed = [build_part(build_tiny_model(vocab_size=VOCAB, seed=seed)) for seed in (8, 9)]
    for folder, other in zip(("whole", "split"), resumed, strict=True):
        assert load(tmp_path / folder, other) == COUNTERS
        assert hold_same(policy, other)
    for part in (policy, *resumed):
        train(part)
    assert all(hold_same(policy, other) for other in resumed)
    reference = build_tiny_model(vocab_size=VOCAB, seed=7)
    load_weights(tmp_path / "split", reference)
    assert torch.equal(reference.lm_head.weight, load_file(tmp_path / "whole" / "model.safetensors")[EMBEDDING])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda file: file.unlink(), r"lacks model-00002-of-00003.safetensors of the 3 files"),
        (lambda file: file.write_bytes(file.read_bytes()[:900]), r"model-00002-of-00003.safetensors is truncated"),
        (lambda file: file.with_name("model.safetensors.index.json").unlink(), r"has 3 of 3 shards but no model."),
        (
            lambda file: file.with_name("model.safetensors.index.json").write_text("{}"),
            r"cannot read model.safetensors.index.json",
        ),
    ],
)
def test_half_a_set_of_shards_is_refused(harm: Any, message: str, tmp_path: Path) -> None:
    model = build_tiny_model(vocab_size=VOCAB)
    save(tmp_path / "split", build_part(model))
    harm(split(tmp_path / "split", model)[1])
    other = build_part(build_tiny_model(vocab_size=VOCAB, seed=9))
    with pytest.raises(CheckpointError, match=rf"checkpoint .*split:? {message}"):
        load(tmp_path / "split", other)
    assert hold_same(other, build_part(build_tiny_model(vocab_size=VOCAB, seed=9))), "nothing was changed"


def test_what_a_checkpoint_lacks_and_has_besides_is_listed_and_changes_nothing(tmp_path: Path) -> None:
    policy, critic = build_part(build_tiny_model(vocab_size=VOCAB)), build_part(torch.nn.Linear(3, 2))
    train(critic)
    save(tmp_path / "run", policy, critic=critic)
    others = [build_part(build_tiny_model(vocab_size=VOCAB, seed=9)), build_part(torch.nn.Linear(3, 2))]
    before = [build_part(build_tiny_model(vocab_size=VOCAB, seed=9)), build_part(torch.nn.Linear(3, 2))]
    before[1].module.load_state_dict(others[1].module.state_dict())
    file, of_critic = tmp_path / "run" / "model.safetensors", tmp_path / "run" / "critic.safetensors"
    weights, critics = load_file(file), load_file(of_critic)

    def refuse(message: str) -> None:
        with pytest.raises(CheckpointError, match=rf"belongs to a different model: {message}"):
            load(tmp_path / "run", others[0], critic=others[1])
        assert all(hold_same(one, other) for one, other in zip(others, before, strict=True))

    save_file({"module." + name: tensor for name, tensor in weights.items()}, file)
    refuse(r"it lacks 24 tensors .* and 21 more\), has 24 tensors .*; the names have a wrapper's prefix 'module\.'")
    save_file({**weights, EMBEDDING: torch.zeros(310, 32)}, file)
    refuse(rf"it has 1 tensor of a different size \({EMBEDDING} is \(310, 32\), in the model \(300, 32\)\)")
    save_file(weights, file)
    save_file({name: tensor for name, tensor in critics.items() if name != "weight/bias"}, of_critic)
    refuse(r"critic: it lacks 1 tensor of the model \(bias\)")
    save_file({**critics, "weight/more": torch.zeros(1)}, of_critic)
    refuse(r"critic: it has 1 tensor not in the model \(more\)")
    save_file(critics, of_critic)
    assert load(tmp_path / "run", others[0], critic=others[1]) == COUNTERS
    assert hold_same(others[1], critic)


def test_buffers_that_are_saved_come_back(tmp_path: Path) -> None:
    """The router of GLM-4 MoE has a buffer that is part of its weights."""

    def build(seed: int) -> PreTrainedModel:
        config = {
            **TINY_CONFIG,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
        }
        return build_model("glm4_moe", config, vocab_size=VOCAB, seed=seed)

    policy, other = build_part(build(0)), build_part(build(1))
    bias = policy.module.get_buffer("model.layers.1.mlp.gate.e_score_correction_bias")
    bias.copy_(torch.arange(4.0))
    save(tmp_path / "run", policy)
    load(tmp_path / "run", other)
    assert hold_same(policy, other)
