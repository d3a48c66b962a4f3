"""Sizes of vision-language models, counted before they are built."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_seeing import CONFIGS, build_seeing, find_type

from turnwise.config.model import ModelSection
from turnwise.models.lora import add_adapter, list_adapter
from turnwise.models.measured import measure_policy
from turnwise.models.vision.tower import freeze_tower, list_tower


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("frozen", [False, True])
def test_parameters_are_those_of_the_built_model(kind: str, frozen: bool) -> None:
    model, tokenizer, _ = build_seeing(kind)
    tower = sum(p.numel() for module in list_tower(model).values() for p in module.parameters())
    settings: dict[str, Any] = {"model_type": find_type(kind), "config": dict(CONFIGS[kind]), "freeze_vision": frozen}
    shape = measure_policy(ModelSection(**settings), vocab_size=len(tokenizer))
    assert shape is not None
    assert shape.measured is not None
    assert shape.num_parameters == sum(p.numel() for p in model.parameters())
    assert shape.tower is not None
    assert shape.tower.parameters == tower
    # Of 32 numbers per token, two layers and an output layer multiply 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64) and
    # 32 * V; a tower multiplies no token.
    layers = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64) + 32 * len(tokenizer)
    assert shape.measured.multiplied == layers
    if frozen:
        freeze_tower(model)
    add_adapter(model, rank=3, alpha=6, dropout=0.0, target_modules="all-linear", base="", seed=0)
    assert shape.count_adapter(3, None) == sum(p.numel() for p in list_adapter(model).values())
