"""Tensors under the names of a checkpoint: what transformers itself saves."""

from pathlib import Path

import pytest
import torch
from every_model import build_tiny
from safetensors.torch import load_file

from turnwise.models.hub_tensors import list_hub_tensors
from turnwise.models.staging import Staging


@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe", "granitemoehybrid", "nemotron_h", "deepseek_v3"])
def test_names_and_values_are_those_that_transformers_saves(name: str, tmp_path: Path) -> None:
    """Experts by themselves or joined, another name of the layers, a router's bias that is a buffer."""
    model = build_tiny(name)
    model.save_pretrained(tmp_path)
    saved, ours = load_file(tmp_path / "model.safetensors"), list_hub_tensors(model)
    assert ours.keys() == saved.keys()
    assert all(torch.equal(ours[key], saved[key]) for key in saved)


def test_what_is_saved_as_it_is_held_is_not_copied() -> None:
    model = build_tiny("qwen3")
    weight = model.get_parameter("model.embed_tokens.weight")
    assert list_hub_tensors(model)["model.embed_tokens.weight"].data_ptr() == weight.data_ptr()


def test_staged_files_are_summed_by_the_names_that_they_hold(tmp_path: Path) -> None:
    model = build_tiny("qwen3_moe")
    staged = Staging(tmp_path).write(model)
    assert staged.file_sums.keys() == load_file(staged.folder / "model.safetensors").keys()
    assert staged.sums.keys() == dict(model.named_parameters()).keys()
