"""Sizes from the config.json of models of many kinds, by hand and against the models themselves."""

from typing import Any

import pytest
from transformers import AutoConfig

from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.building.sizes import measure_recipe
from turnwise.config.run import RunConfig
from turnwise.forecast.memory import plan_memory
from turnwise.models.measured import measure_policy
from turnwise.models.shape import ModelShape, parse_shape

PLAIN = {
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
}
LATENT = {
    **PLAIN,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "kv_lora_rank": 6,
    "q_lora_rank": 10,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 6,
}
DELTA = {
    **PLAIN,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
MAMBA = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 8, "n_groups": 1}


def read(table: dict[str, Any]) -> ModelShape:
    shape = parse_shape(table)
    assert shape is not None
    return shape


def measure(config: RunConfig) -> ModelShape | None:
    return measure_policy(config.model, vocab_size=config.tokenizer.vocab_size)


def recipe(model_type: str, config: dict[str, Any], **sections: Any) -> RunConfig:
    model = {"model_type": model_type, "config": config, **sections.pop("model", {})}
    return RunConfig.model_validate({"model": model, **sections})


def test_latent_attention_by_hand() -> None:
    """Queries of 4 heads of 12, by way of 10 numbers; keys and values by way of 6, and 4 of a key for all heads."""
    shape = read({**LATENT, "head_dim": 4})
    assert (shape.head_dim, shape.values, shape.num_kv_heads) == (12, 6, 4)
    attention = 16 * 10 + 10 * 48 + 16 * (6 + 4) + 6 * 4 * (8 + 6) + 24 * 16
    assert shape.num_attention == attention
    # One dense layer of 24; in three a router of 4, 2 of 4 experts of 8 and a shared one of 8.
    mixed = 16 * 4 + 2 * 3 * 16 * 8 + 3 * 16 * 8
    assert shape.num_linear == 4 * attention + 3 * 16 * 24 + 3 * mixed + 100 * 16
    assert shape.num_cached == 4 * 4 * (12 + 6)


@pytest.mark.parametrize(
    ("model_type", "table"),
    [
        ("llama", PLAIN),
        ("qwen2", PLAIN),
        ("deepseek_v3", LATENT),
        ("qwen3_moe", {**PLAIN, **EXPERTS}),
        ("qwen3", {**PLAIN, "tie_word_embeddings": True}),
    ],
)
def test_the_formula_is_close_to_the_model_itself(model_type: str, table: dict[str, Any]) -> None:
    config = recipe(model_type, table)
    measured = measure(config)
    assert measured is not None
    assert measured.measured is not None
    formula = read({**AutoConfig.for_model(model_type, **table).to_dict(), "model_type": model_type})
    # Biases and the norms of queries and keys are not in the formula.
    assert formula.num_parameters == pytest.approx(measured.num_parameters, rel=0.05)
    assert formula.num_linear == pytest.approx(measured.num_linear, rel=0.05)


def test_states_by_hand_and_by_the_model() -> None:
    shape = read(DELTA)
    # Three layers: 4 states of 8 x 8, and the last 4 inputs of 2 x 2 x 8 keys and queries and 4 x 8 values.
    assert (shape.num_recurrent, shape.num_attending, shape.is_packed) == (3, 1, False)
    assert shape.num_states == 3 * (4 * 8 * 8 + (2 * 2 * 8 + 4 * 8) * 4)
    assert shape.num_cached == 1 * 2 * 2 * 4
    measured = measure(recipe("qwen3_next", {**DELTA, **EXPERTS}))
    assert measured is not None
    assert measured.measured is not None
    assert (measured.num_kept, measured.num_cached) == (shape.num_states, shape.num_cached)


@pytest.mark.parametrize(
    ("model_type", "table"),
    [
        ("lfm2", {**PLAIN, "layer_types": ["conv", "conv", "conv", "full_attention"]}),
        (
            "granitemoehybrid",
            {
                **PLAIN,
                "layer_types": ["mamba", "attention", "mamba", "attention"],
                "mamba_n_heads": 4,
                "mamba_d_head": 8,
                "mamba_d_state": 16,
                "num_local_experts": 0,
            },
        ),
        ("mamba2", MAMBA),
        ("falcon_h1", {**PLAIN, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 16}),
        ("bloom", {"vocab_size": 100, "hidden_size": 16, "n_layer": 2, "n_head": 4}),
    ],
)
def test_models_that_are_not_packed_keep_what_their_modules_keep(model_type: str, table: dict[str, Any]) -> None:
    config = recipe(model_type, table)
    shape = measure(config)
    assert shape is not None
    assert shape.measured is not None
    assert shape.measured.saved is not None
    assert not shape.is_packed
    resolved = resolve(config)
    memory = plan_memory(read_forecast_settings(resolved), shapes=measure_recipe(config, resolved.copies))
    assert memory is not None
    assert memory.packed == 0
    assert memory.training > 0


def test_scores_of_rows_grow_with_the_square_of_their_length() -> None:
    """Of one attending layer of 4 heads: pairs of tokens have 4 float32 scores each."""
    measured = measure(recipe("qwen3_next", {**DELTA, **EXPERTS}))
    assert measured is not None
    assert measured.measured is not None
    assert measured.measured.saved is not None
    # bfloat16 here, where experts are counted: the softmax in float32, and its result in bfloat16.
    assert measured.measured.saved[1] == pytest.approx(4 * (4 + 2), rel=0.02)


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"text_config": PLAIN, "vision_config": {"hidden_size": 7}, "tie_word_embeddings": True}, (16, True)),
        ({**PLAIN, "num_key_value_heads": None}, (16, False)),
        ({**PLAIN, "quantization_config": {"quant_method": "fp8"}, "torch_dtype": "float8_e4m3fn"}, (16, False)),
        ({"n_embd": 16, "n_head": 4, "n_layer": 2, "n_inner": 64, "vocab_size": 100}, (16, False)),
    ],
)
def test_configs_of_other_forms_are_read(table: dict[str, Any], wanted: tuple[int, bool]) -> None:
    shape = read(table)
    assert (shape.hidden_size, shape.tied) == wanted
    assert shape.num_kv_heads in (2, 4)


@pytest.mark.parametrize("name", ["hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size"])
@pytest.mark.parametrize("value", [None, "many", 0, True])
def test_a_config_without_a_usual_size_is_unknown(name: str, value: Any) -> None:
    assert parse_shape({**PLAIN, name: value}) is None


def test_rows_of_padding_count_and_a_longer_context_is_no_error() -> None:
    padded, plain = recipe("llama", {**PLAIN, "vocab_size": 5000}), recipe("llama", {**PLAIN, "vocab_size": 100})
    sizes = [measure(each) for each in (padded, plain)]
    assert sizes[0] is not None
    assert sizes[1] is not None
    assert sizes[0].num_parameters - sizes[1].num_parameters == 2 * 4900 * 16
    long = recipe("llama", PLAIN, engine={"max_context": 1_000_000}, rollout={"max_tokens": 1_000_000})
    memory = plan_memory(read_forecast_settings(resolve(long)))
    assert memory is not None
    assert memory.cache > 2**34


def test_an_adapter_on_a_mixture_has_no_part_in_its_experts() -> None:
    """transformers keeps experts in tensors of all of them, which an adapter on linear layers does not reach."""
    table = {**PLAIN, **EXPERTS}
    shape = measure(recipe("qwen3_moe", table, model={"lora": {"rank": 3}}))
    assert shape is not None
    # q 16 + 16, k and v 16 + 8, o 16 + 16 in four layers; the router is a layer of its own kind.
    assert shape.count_adapter(3, None) == 3 * 4 * (32 + 24 + 24 + 32)
