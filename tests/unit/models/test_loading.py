"""What a model's folder may hold: tensors as data, never objects that loading would build."""

from pathlib import Path

import pytest
import torch

from turnwise.core.errors import ConfigError
from turnwise.models.build import load_model
from turnwise.testing import build_tiny_model


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_pickled_weights_are_refused_whether_hostile_or_not(tmp_path: Path) -> None:
    model = build_tiny_model()
    model.save_pretrained(tmp_path)
    assert load_model(tmp_path).config.model_type == model.config.model_type
    (tmp_path / "model.safetensors").unlink()
    mark = tmp_path / "mark"
    for weights in (model.state_dict(), Touch(mark)):
        torch.save(weights, tmp_path / "pytorch_model.bin")
        with pytest.raises(ConfigError, match="safetensors"):
            load_model(tmp_path)
    assert not mark.exists()
