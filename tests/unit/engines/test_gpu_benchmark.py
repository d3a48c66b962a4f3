"""`benchmarks/gpu.py`: its arithmetic by hand, what it says without a GPU, and a tiny run of all of it on the CPU."""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from turnwise.models.shape import ModelShape

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    # A benchmark imports its neighbours.
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("benchmark_gpu", BENCHMARKS / "gpu.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


def shape(**changes: Any) -> ModelShape:
    sizes: dict[str, Any] = {
        "vocab_size": 100,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 4,
        "tied": True,
    }
    return ModelShape(**{**sizes, **changes})


def test_bytes_of_a_decode_step_by_hand(gpu: ModuleType) -> None:
    # 2 x 768 in the layers' matrices, 5 norms of 8, 800 in the embedding, which is the output layer: 2376. A token's
    # keys and values: 2 x 2 layers x 2 heads x 4 = 32. Three sequences see 64 + 10 / 2 = 69 tokens. 2 bytes each.
    assert gpu.PROMPT == 64
    assert gpu.decode_bytes(shape(), 2, sequences=3, new_tokens=10) == 2 * (2376 + 3 * 69 * 32)
    # An embedding that is not the output layer is looked up, not read.
    assert gpu.decode_bytes(shape(tied=False), 2, sequences=3, new_tokens=10) == 2 * (2376 + 3 * 69 * 32)


def test_operations_of_a_step_by_hand(gpu: ModuleType) -> None:
    # Forward 2 and backward 4 per weight: 1536 weights for each of 20 tokens, 800 for each of 15 predicted ones.
    # Attention forward: two products of 20 x 20 / 2 x 16 multiply-adds per layer = 2 x 2 x 200 x 16 = 12800 operations,
    # three times that with backward.
    assert gpu.step_flops(shape(), length=20, sequences=1, trained=15) == 6 * (1536 * 20 + 800 * 15) + 2 * 3 * 12800
    assert gpu.step_flops(shape(), length=20, sequences=5, trained=15) == 5 * gpu.step_flops(
        shape(), length=20, sequences=1, trained=15
    )


@pytest.mark.parametrize(("size", "parameters"), [("0.6B", 596_049_920), ("1.7B", 1_720_574_976)])
def test_the_shapes_are_the_published_ones(gpu: ModuleType, size: str, parameters: int) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    vocab_size, config = gpu.SIZES[size]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **config, vocab_size=vocab_size))
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("way", [{"attention": "gather"}, {"attention": "flex"}])
def test_memory_is_predicted_for_every_way_of_decoding(gpu: ModuleType, way: dict[str, str]) -> None:
    vocab_size, config = gpu.SIZES["tiny"]
    options = argparse.Namespace(
        attention=[way["attention"]],
        cuda_graphs=False,
        dtype="float32",
        device="cpu",
        sequences=[4],
        new_tokens=8,
        train_tokens=64,
        micro_batch_tokens=128,
    )
    recipe, predicted = gpu.predict_bytes(config, vocab_size, options)
    assert recipe.engine.options == way
    assert predicted > 4 * 4 * 106_112  # weights, gradients and two moments of 106,112 parameters


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")
def test_without_a_gpu_it_says_so_and_ends_well() -> None:
    assert run().keys() == {"gpu"}
    assert run()["gpu"].startswith("none at hand: ")


@pytest.mark.slow
def test_a_tiny_run_on_the_cpu() -> None:
    sizes = ("--sizes", "tiny", "--device", "cpu", "--sequences", "4", "8", "--new-tokens", "6", "--rounds", "1")
    report = run(
        *sizes,
        "--attention",
        "gather",
        "flex",
        "--train-tokens",
        "64",
        "--train-sequences",
        "4",
        "--micro-batch-tokens",
        "128",
    )
    assert (report["device"], report["dtype"]) == ("cpu", "bfloat16")
    assert min(report["limits"].values()) > 0
    tiny = report["sizes"]["tiny"]
    assert {number: list(ways) for number, ways in tiny["decode"].items()} == {
        "4": ["gather", "flex"],
        "8": ["gather", "flex"],
    }
    for way in ("gather", "flex"):
        assert tiny["parity"][way]["tokens"] == 4 * 16
        assert tiny["parity"][way]["max_nats"] < 0.05  # a few roundings of bfloat16 at logits below 1
    assert tiny["training"]["flops_utilisation"] > 0
    assert "memory" not in tiny  # torch counts it on a GPU only
