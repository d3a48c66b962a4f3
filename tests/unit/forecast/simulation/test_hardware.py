"""Costs on GPUs by hand, and the command that plans with them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.core.errors import ConfigError
from turnwise.forecast.simulation.hardware import Cluster, Efficiency, Gpu, estimate_costs
from turnwise.models.shape import ModelShape

SHAPE = ModelShape(
    vocab_size=100,
    hidden_size=10,
    intermediate_size=20,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=5,
    tied=True,
)
GPU = Gpu(flops=1e6, memory=40_000, bandwidth=1e5, link=1e4)
EXACT = Efficiency(decoding=1.0, computing=1.0, step_s=0.5, memory=1.0, publish_s=1.0)
TINY = Path(__file__).parents[4] / "recipes" / "search_r1" / "tiny.toml"


def test_a_roofline_by_hand() -> None:
    # 2,850 parameters of 2 bytes: 2 layers of 300 for attention and 600 for the rest, 1,000 of the output, 50 of norms.
    costs = estimate_costs(SHAPE, Cluster(gpu=GPU, num_gpus=3, trainer_gpus=1, efficiency=EXACT), item=2, context=100)
    assert costs.num_engines == 2
    assert costs.engine.step_s == pytest.approx(0.5 + 2850 * 2 / 1e5)
    assert costs.engine.sequence_s == pytest.approx(2 * 2800 / 1e6)
    assert costs.engine.attended_s == pytest.approx(20 * 2 / 1e5)  # 2 layers of 5 keys and 5 values
    assert costs.engine.slots == (40_000 - 5700) // (40 * 100)
    assert costs.train_token_s == pytest.approx(6 * (2800 + 4 * 2 * 2 * 5 * 50 / 2) / 1e6)
    assert costs.publish_s == pytest.approx(1 + 5700 / 1e4)


def test_an_engine_too_small_for_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="raise --engine-gpus"):
        estimate_costs(SHAPE, Cluster(gpu=GPU, num_gpus=1, efficiency=EXACT), item=2, context=1000)


def test_the_command_plans_every_schedule() -> None:
    small = ["rollout.tasks_per_step=2", "rollout.group_size=2"]
    arguments = ["plan", str(TINY), *small, "--gpus", "3", "--tool-seconds", "1", "5", "--price", "2", "--json"]
    plan = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    rows = {row["schedule"]: row for row in plan["schedules"]}
    assert {"synchronous, shared GPUs", "synchronous", "overlap", "staleness 4"} <= set(rows)
    assert rows["staleness 4"]["max_age"] == 4
    assert rows["staleness 4"]["trajectories_per_s"] > rows["overlap"]["trajectories_per_s"]
    for row in rows.values():
        assert sum(row["engine"].values()) == pytest.approx(1)
        assert sum(row["trainer"].values()) == pytest.approx(1)
        assert row["price_per_million"] == pytest.approx(2 * row["gpu_hours_per_million"])


def test_a_plan_without_a_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="--gpus N"):
        CliRunner().invoke(app, ["plan", str(TINY)], catch_exceptions=False)
