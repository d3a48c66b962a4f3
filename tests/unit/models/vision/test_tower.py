"""What of a model is its tower: frozen, left out of an adapter, or trained by one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from conversations import compute_packed, write
from tiny_seeing import CONFIGS, build_seeing, draw

from turnwise.core.errors import ConfigError
from turnwise.models.lora import add_adapter, copy_model, list_adapter, merge_adapter
from turnwise.models.vision.tower import freeze_tower, is_frozen, list_tower
from turnwise.testing import build_tiny_model

ADAPTER: dict[str, Any] = {"rank": 2, "alpha": 4.0, "dropout": 0.0, "base": "", "seed": 0}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_frozen_tower_gets_no_gradient_and_is_shared_by_copies(kind: str) -> None:
    model, _, eyes = build_seeing(kind)
    assert not is_frozen(model)
    assert is_frozen(freeze_tower(model))
    conversation = write(eyes, [40, 41], draw(0), [42, 43])
    compute_packed(model, eyes, conversation).logsumexp(-1).sum().backward()
    towers = tuple(list_tower(model))
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == name.startswith(towers), name
    other = copy_model(model)
    shared = [name for name, p in model.named_parameters() if p is other.get_parameter(name)]
    assert shared == [name for name, _ in model.named_parameters() if name.startswith(towers)]


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("frozen", [True, False])
def test_an_adapter_leaves_out_a_frozen_tower(kind: str, frozen: bool) -> None:
    model, _, eyes = build_seeing(kind)
    if frozen:
        freeze_tower(model)
    plain = copy.deepcopy(model)
    add_adapter(model, target_modules="all-linear", **ADAPTER)
    names = list(list_adapter(model))
    assert names
    assert any(name.startswith(tuple(list_tower(model))) for name in names) == (not frozen)
    assert any(not name.startswith(tuple(list_tower(model))) for name in names)
    conversation = write(eyes, [40, 41], draw(0), [42, 43])
    with torch.no_grad():
        before = compute_packed(plain, eyes, conversation)
        assert torch.equal(compute_packed(model, eyes, conversation), before)
        for name, parameter in list_adapter(model).items():
            if "lora_B" in name:
                parameter.fill_(0.02)
        adapted = compute_packed(model, eyes, conversation)
        assert float((adapted - before).abs().max()) > 1e-4
        assert float((compute_packed(merge_adapter(model), eyes, conversation) - adapted).abs().max()) < 1e-5


def test_a_layer_of_the_frozen_tower_cannot_be_named() -> None:
    model, _, _ = build_seeing()
    freeze_tower(model)
    with pytest.raises(ConfigError, match=r"'fc1', but the model has no layer outside its frozen tower .model\.freeze"):
        add_adapter(model, target_modules=["fc1"], **ADAPTER)
    whole, _, _ = build_seeing()
    add_adapter(whole, target_modules=["fc1"], **ADAPTER)
    assert all(name.startswith("model.vision_model.") for name in list_adapter(whole))


def test_a_model_of_text_has_no_tower() -> None:
    model = build_tiny_model()
    assert list_tower(model) == {}
    assert is_frozen(model)
    assert any(p.requires_grad for p in freeze_tower(model).parameters())
