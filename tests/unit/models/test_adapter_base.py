"""Which model an adapter was made for: names of the hub, its cache's folders, and weights where both are at hand."""

from pathlib import Path

import pytest
import torch

from turnwise.core.errors import ConfigError
from turnwise.models.adapter_base import check_base
from turnwise.testing import build_tiny_model

CACHE = "/home/me/.cache/huggingface/hub/models--org--Name/snapshots/5f3c"


@pytest.mark.parametrize(
    ("named", "base"),
    [
        ("", ""),
        ("org/Name", CACHE),
        (CACHE, "org/Name"),
        (CACHE, "/other/hub/models--org--Name/snapshots/9999/"),
        ("ORG/name", CACHE),
        ("/data/Name", CACHE),
        ("org/Name", "/data/Name"),
        ("/old/place/Name", "/new/place/Name"),
        ("gpt2", "/hub/models--gpt2/snapshots/5f3c"),
    ],
)
def test_one_model_by_two_names(named: str, base: str) -> None:
    check_base(named, base, "adapter")


@pytest.mark.parametrize(
    ("named", "base", "compared"),
    [
        ("org/Name", "/hub/models--other--Name/snapshots/5f3c", "names of the hub"),
        ("org/Name", "/hub/models--org--Name-Instruct/snapshots/5f3c", "names of the hub"),
        ("/hub/models--org--Name/snapshots/5f3c", "/hub/models--org--Other/snapshots/5f3c", "names of the hub"),
        ("org/Name", "/data/Other", "names of the folders"),
        ("org/Name", "", "names"),
        ("", "/data/Name", "names"),
    ],
)
def test_two_models_are_told_apart_by_name(named: str, base: str, compared: str) -> None:
    with pytest.raises(ConfigError, match=rf"adapter was made for the model .* \(compared: {compared}\); if they are"):
        check_base(named, base, "adapter")


def test_weights_decide_where_both_folders_are_here(tmp_path: Path) -> None:
    one, twin, other, wider = (tmp_path / name for name in ("a/model", "b/renamed", "c/model", "d/model"))
    for folder, seed, size in ((one, 0, 64), (twin, 0, 64), (other, 1, 64), (wider, 0, 65)):
        build_tiny_model(seed=seed, vocab_size=size).save_pretrained(folder)
    check_base(str(one), str(one), "adapter")
    check_base(str(one), str(twin), "adapter")  # other names, the same weights
    for different in (other, wider):
        with pytest.raises(ConfigError, match="compared: weights in both folders"):
            check_base(str(one), str(different), "adapter")
    # A model trained in one layer only is another one.
    trained = build_tiny_model(seed=0, vocab_size=64)
    with torch.no_grad():
        trained.model.layers[1].mlp.up_proj.weight += 1e-3
    trained.save_pretrained(tmp_path / "e" / "model")
    with pytest.raises(ConfigError, match="compared: weights in both folders"):
        check_base(str(one), str(tmp_path / "e" / "model"), "adapter")
