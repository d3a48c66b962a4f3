"""The table of an adapter: left out, empty, filled, wrong."""

import pytest

from turnwise.config.load import dump_resolved, load_config
from turnwise.config.options import list_options
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

MODEL = "model.config={hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1}"


def test_a_table_that_is_left_out_trains_all_weights() -> None:
    assert load_config([], [MODEL]).model.lora is None
    lora = load_config([], [MODEL, "model.lora={}"]).model.lora
    assert lora is not None
    assert (lora.rank, lora.alpha, lora.dropout, lora.target_modules, lora.path) == (16, 32.0, 0.0, "all-linear", "")


def test_a_table_is_read_back() -> None:
    config = load_config([], [MODEL, "model.lora.target_modules=['q_proj']", "model.lora.rank=4"])
    assert RunConfig.model_validate(dump_resolved(config)) == config
    assert "model.lora.target_modules" in list_options(RunConfig)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.lora={path='a', rank=8, alpha=1.0}", r"has its own rank and alpha; remove model\.lora\.rank and"),
        ("model.lora.target_modules=[]", "leaves nothing to train"),
        ("model.lora.rnak=8", r"unknown key 'model\.lora\.rnak'; did you mean 'model\.lora\.rank'"),
        (
            "model.lora.target_modules=q_proj",
            r"target_modules is 'q_proj'; it must be 'all-linear', or a list, such as \[\"a\", \"b\"\]",
        ),
        ("model.lora.target_modules=[1]", r"target_modules\.0 is 1; it must be"),
        ("model.lora.rank=0", r"model\.lora\.rank is 0"),
    ],
)
def test_what_does_not_fit_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config([], [MODEL, override])


def test_a_rank_that_vllm_cannot_hold_is_named() -> None:
    adapted = [MODEL, "engine.kind=vllm", "model.lora.rank=512"]
    assert load_config([], adapted).model.lora is not None
    with pytest.raises(ConfigError, match=r"model\.lora\.rank=513 with engine\.kind='vllm', .* rank 512; lower"):
        load_config([], [*adapted, "model.lora.rank=513"])
