"""The prediction of seconds, against arithmetic by hand."""

import json
from pathlib import Path

import pytest

from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.forecast.memory import plan_memory
from turnwise.forecast.timing import StepTokens, count_tokens, plan_time, predict_step
from turnwise.models.calibration import measure_speed
from turnwise.models.shape import ModelShape, read_policy_shape
from turnwise.models.speed import Speed

RECIPE = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
SHAPE = ModelShape(
    vocab_size=10,
    hidden_size=4,
    intermediate_size=8,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=2,
    tied=True,
    model_type="llama",
)


def count_recipe(config: RunConfig) -> StepTokens:
    return count_tokens(read_forecast_settings(resolve(config)))


def test_a_step_counts_products_attention_and_the_optimizer():
    # Matrices: attention 4 x 2 x 2 x (2 + 1) = 48 and 3 x 4 x 8 = 96 numbers a layer, 288 in two; the head has 40.
    # Attention: 4 x 2 layers x 2 heads x 2 x 10 keys = 320. So 2 x 288 + 320 = 896 operations a token, 80 a head.
    speed = Speed(training=1000.0, sampling=100.0, optimizer=50.0)
    tokens = StepTokens(prompt=20, sampled=5, computed=30, context=10)
    seconds = predict_step(SHAPE, speed, tokens)
    assert seconds.sampling == pytest.approx(20 * 896 / 1000 + 5 * (896 + 80) / 100)
    # Parameters: 328 in matrices and (2 x 2 + 1) x 4 = 20 in norms.
    assert seconds.training == pytest.approx(3 * (30 * 896 + 5 * 80) / 1000 + 348 / 50)
    more = predict_step(SHAPE, speed, tokens, num_scorings=1)
    assert more.training - seconds.training == pytest.approx((30 * 896 + 5 * 80) / 1000)


def test_the_tokens_of_a_step_are_those_of_full_trajectories():
    config = load_config([RECIPE], ["rollout.tasks_per_step=2", "rollout.group_size=3", "train.shared_prefix=true"])
    # Five turns of 24 sampled tokens leave 384 - 120 = 264 of the budget for what is not sampled.
    assert count_recipe(config) == StepTokens(prompt=528, sampled=720, computed=2 * (264 + 3 * 120), context=192)
    config = load_config([RECIPE], ["rollout.tasks_per_step=2", "rollout.group_size=3", "train.shared_prefix=false"])
    assert count_recipe(config).computed == 6 * 384


def test_a_recipe_whose_sizes_are_unknown_has_no_prediction(tmp_path):
    config = load_config([RECIPE], [f"model.path={tmp_path}"])
    assert plan_time(read_forecast_settings(resolve(config)), Speed(training=1.0, sampling=1.0, optimizer=1.0)) is None


def test_the_family_of_a_loaded_model_decides_what_the_engine_copies(tmp_path):
    table = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    table |= {"vocab_size": 100, "num_key_value_heads": 2}
    copied = {}
    for family in ("llama", "mixtral"):
        (tmp_path / "config.json").write_text(json.dumps({**table, "model_type": family}))
        recipe = load_config([RECIPE], [f"model.path={tmp_path}"])
        plan = plan_memory(read_forecast_settings(resolve(recipe)))
        assert plan is not None
        copied[family] = plan.packed
    assert copied["llama"] > 0
    assert copied["mixtral"] == 0  # runs through its own modules


def test_a_speed_is_measured_on_this_machine():
    recipe = load_config([RECIPE])
    shape = read_policy_shape(recipe.model, vocab_size=recipe.tokenizer.vocab_size)
    assert shape is not None
    speed = measure_speed(shape, rows=4)
    assert min(speed.training, speed.sampling, speed.optimizer) > 1e5
