"""Plans of clusters beside estimates by hand, for models of 7 and 70 billion parameters (docs/simulation.md)."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from turnwise.building.forecasting import read_forecast_settings
from turnwise.building.resolved import resolve
from turnwise.building.sizes import measure_recipe
from turnwise.cli.main import app
from turnwise.config.run import RunConfig
from turnwise.forecast.held import Shapes
from turnwise.forecast.memory import plan_rank
from turnwise.forecast.settings import ForecastSettings
from turnwise.forecast.simulation.hardware import GPUS, Cluster, describe_today, estimate_costs, plan_gpus, plan_traffic

TINY = Path(__file__).parents[4] / "recipes" / "search_r1" / "tiny.toml"
BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
MARGIN = 0.15
"""How far a plan may be from the estimate by hand, which rounds a layer's activations to 34 bytes per hidden number."""


def load_benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_clusters", BENCHMARKS / "clusters.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = load_benchmark()
SIZES, PARAMETERS, TOKENS, recipe = (
    BENCHMARK.SIZES,
    BENCHMARK.PARAMETERS,
    BENCHMARK.TOKENS,
    BENCHMARK.build_recipe,
)


def read_settings(config: RunConfig) -> ForecastSettings:
    return read_forecast_settings(resolve(config))


def measure(config: RunConfig) -> Shapes:
    shapes = measure_recipe(config, resolve(config).copies)
    assert shapes is not None
    return shapes


@pytest.mark.parametrize("size", ["7B", "70B"])
@pytest.mark.parametrize("ranks", [32, 256])
def test_memory_of_a_trainers_gpu(size: str, ranks: int) -> None:
    config = recipe(size)
    shapes = measure(config)
    assert shapes.policy.num_parameters == PARAMETERS[size]
    memory = plan_rank(read_settings(config), shapes, num_ranks=ranks)
    assert memory.peak == pytest.approx(sum(BENCHMARK.estimate(size, ranks).values()), rel=MARGIN)
    assert memory.states == 16 * PARAMETERS[size] // ranks


def test_activations_do_not_depend_on_the_number_of_ranks() -> None:
    shapes = measure(recipe("7B"))
    plans = [plan_rank(read_settings(recipe("7B")), shapes, num_ranks=ranks) for ranks in (2, 8, 64)]
    assert len({(plan.activations, plan.logits, plan.gathered) for plan in plans}) == 1
    assert plans[0].states == 4 * plans[1].states
    # What the recipe says about ranks is for this machine.
    config = recipe("7B", train={"ranks": 8})
    assert plan_rank(read_settings(config), shapes, num_ranks=8) == plans[1]


def test_one_gpu_holds_masters() -> None:
    """Weights in bfloat16, a float32 copy, two moments and gradients: 2 + 4 + 8 + 4 bytes."""
    memory = plan_rank(read_settings(recipe("7B")), measure(recipe("7B")), num_ranks=1)
    assert memory.states == 18 * PARAMETERS["7B"]
    assert memory.gathered == 0


@pytest.mark.parametrize(("size", "ranks"), [("7B", 8), ("7B", 32), ("70B", 256)])
def test_traffic_by_hand(size: str, ranks: int) -> None:
    """Each rank gets what it lacks of the weights twice, in bfloat16, and of the gradients once, in float32."""
    shape = measure(recipe(size)).policy
    cluster = Cluster(gpu=GPUS["h100"], num_gpus=2 * ranks, trainer_gpus=ranks)
    traffic = plan_traffic(shape, cluster, item=2)
    assert traffic is not None
    others = PARAMETERS[size] * (ranks - 1) / ranks
    assert traffic.gathered == pytest.approx(2 * 2 * others)
    assert traffic.reduced == pytest.approx(4 * others)
    # 80% of 450 GB/s within a machine, of 50 GB/s between machines.
    assert traffic.seconds == pytest.approx(8 * others / (0.8 * (450e9 if ranks == 8 else 50e9)))
    assert traffic.link.startswith("NVLink" if ranks == 8 else "the network")
    assert plan_traffic(shape, Cluster(gpu=GPUS["h100"], num_gpus=2, trainer_gpus=1), item=2) is None


@pytest.mark.parametrize(("size", "tokens_per_s"), [("7B", 8_660), ("70B", 934)])
def test_seconds_of_a_token_by_hand(size: str, tokens_per_s: float) -> None:
    """40% of 989e12 operations, of which a token takes 6 per parameter: 395.6e12 / (6 x 7.6e9), and of 70.6e9."""
    shape = measure(recipe(size)).policy
    cluster = Cluster(gpu=GPUS["h100"], num_gpus=64, engine_gpus=8, trainer_gpus=32, publication="files")
    costs = estimate_costs(shape, cluster, item=2, context=8192, micro_batch_tokens=TOKENS)
    assert 1 / (costs.train_token_s * 32) == pytest.approx(tokens_per_s, rel=MARGIN)
    # Fewer tokens between two exchanges: the network is slower than the arithmetic.
    traffic = plan_traffic(shape, cluster, item=2)
    assert traffic is not None
    slow = estimate_costs(shape, cluster, item=2, context=8192, micro_batch_tokens=1024)
    assert slow.train_token_s == pytest.approx(traffic.seconds / 1024 / 32)
    # Rows of ranks on other machines at 0.29 GB/s, then files at 0.27 GB/s, and a second.
    weights = 2 * PARAMETERS[size]
    assert costs.publish_s == pytest.approx(1 + weights / 0.29e9 + weights / 0.27e9)


def test_an_engines_gpu_by_hand() -> None:
    """64 trajectories on 32 engines: 2 of 8,192 tokens, each of 2 x 28 x 4 x 128 numbers of 2 bytes."""
    config = recipe("7B")
    cluster = Cluster(gpu=GPUS["h100"], num_gpus=64, trainer_gpus=32)
    shapes = measure(config)
    trainer = plan_rank(read_settings(config), shapes, num_ranks=32)
    memory = plan_gpus(trainer, shapes.policy, cluster, item=2, context=config.rollout.max_tokens, num_open=64)
    assert memory.engine == 2 * PARAMETERS["7B"] + 2 * 8192 * 2 * 28 * 4 * 128 * 2


def test_what_runs_today() -> None:
    gpu = GPUS["h100"]
    assert describe_today(Cluster(gpu=gpu, num_gpus=1)) == "all of it: one GPU trains and samples"
    near = describe_today(Cluster(gpu=gpu, num_gpus=8, trainer_gpus=4))
    assert near.startswith("not tried on GPUs: a trainer of 4 GPUs")
    assert "4 engines" in near
    far = describe_today(Cluster(gpu=gpu, num_gpus=64, engine_gpus=2, trainer_gpus=32))
    assert far.startswith("not there: a trainer of 32 GPUs")
    assert "engines of 2 GPUs" in far


def test_the_command_says_what_runs_and_what_is_exchanged() -> None:
    model = [f"model.config.{name}={json.dumps(value)}" for name, value in SIZES["7B"].items()]
    model.append("model.config.head_dim=128")
    few = ["rollout.tasks_per_step=8", "rollout.group_size=2", "model.model_type=qwen2", "model.dtype=bfloat16"]
    arguments = ["plan", str(TINY), *few, *model, "--gpus", "64", "--trainer-gpus", "32", "--json"]
    plan = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)["plan"]
    assert plan["runs today"].startswith("not there: a trainer of 32 GPUs")
    assert "7,615,616,512" in plan["parameters"]
    assert "29.5 GB of weights and 29.5 GB of gradients" in plan["traffic of a rank"]
    assert "the network, 50 GB/s per GPU" in plan["traffic of a rank"]
    assert "states 3.8" in plan["of it"]
