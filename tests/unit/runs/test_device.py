"""Where models live: what `model.device` chooses and refuses, and that everything that computes keeps to one device."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from turnwise.config.load import dump_resolved, load_config, load_resolved
from turnwise.core.errors import ConfigError
from turnwise.core.types import SamplingParams, Session, to_ids
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.engines.registry import check_engine
from turnwise.models.build import build_model, choose_device
from turnwise.runs.audit import audit_run
from turnwise.runs.build import build_system, engine_settings, find_device
from turnwise.runs.evaluate import load_run
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder

HERE = Path(__file__).parent
TINY = HERE.parents[2] / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "model.config.tie_word_embeddings=false",
    "tokenizer.num_texts=150",
    "tokenizer.vocab_size=450",
    "rollout.tasks_per_step=2",
    "rollout.group_size=2",
    "rollout.max_turns=2",
    "rollout.max_turn_tokens=8",
    "sft.steps=1",
    "sft.num_demonstrations=8",
    "sft.batch_size=8",
    "train.steps=2",
    "train.num_threads=1",
    "train.checkpoint_every=1",
    "evaluate.tasks=1",
    "evaluate.controls={}",
    "engine.max_concurrency=16",
    "engine.options.fused=false",
    "credit.method=gae",
    "critic.kind=separate",
    "loss.entropy_coefficient=0.1",
    "loss.kl.coefficient=0.1",
]
GRAPHS = ["engine.options.cuda_graphs=true", "engine.options.attention='flex'", "engine.options.fused=true"]
WORKERS = ["engine.kind=workers", "engine.options.num_workers=2"]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")


@no_gpu
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused_with_the_remedy() -> None:
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(
        ConfigError, match=r"model.device='cuda' and torch .* (was built without CUDA|finds no GPU).*'auto' or 'cpu'"
    ):
        choose_device("cuda")


def test_the_recipe_says_where_and_auto_is_the_default() -> None:
    config = load_config([TINY], SMALL)
    assert config.model.device == "auto"
    assert find_device(load_config([TINY], [*SMALL, "model.device=cpu"])) == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"model.device is 'tpu'; it must be 'auto', 'cpu' or 'cuda'"):
        load_config([TINY], ["model.device=tpu"])


def test_engine_workers_are_for_the_cpu() -> None:
    config = load_config([TINY], WORKERS)
    about: dict[str, Any] = {"common": engine_settings(config), "options": config.engine.options}
    check_engine("workers", device="cpu", **about)
    with pytest.raises(
        ConfigError, match=r"engine.kind='workers' with a model on cuda: .* memory shared between processes"
    ):
        check_engine("workers", device="cuda", **about)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["engine.kind='local'", "engine.options.attention='flex'"],
            r"engine.options.(attention|fused) is not an option of engine.kind='local'",
        ),
        (
            ["engine.options.cuda_graphs=true", "engine.options.fused=true"],
            r"attention='flex' and fused=true; here they are 'gather' and true",
        ),
        (["engine.options.cuda_graphs=true", "engine.options.attention='flex'"], r"here they are 'flex' and false"),
        (GRAPHS, r"cuda_graphs=true with a model on cpu: graphs need a GPU; use engine.options.cuda_graphs"),
        ([*GRAPHS, *WORKERS], r"engine.options.cuda_graphs is not an option of engine.kind='workers'"),
    ],
)
def test_attention_and_graphs_that_cannot_work_are_refused_with_the_remedy(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_device(load_config([TINY], [*SMALL, "model.device=cpu", *overrides]))


@no_gpu
def test_graphs_are_refused_where_auto_is_the_cpu() -> None:
    with pytest.raises(ConfigError, match=r"cuda_graphs=true with a model on cpu: graphs need"):
        find_device(load_config([TINY], [*SMALL, *GRAPHS]))
    assert load_config([TINY], [*SMALL, *GRAPHS, "model.device=cuda"]).engine.options["cuda_graphs"]


def test_a_system_is_on_its_device() -> None:
    system = build_system(load_config([TINY], [*SMALL, "model.device=cpu"]))
    assert {p.device.type for p in system.model.parameters()} == {"cpu"}
    assert isinstance(system.engine.engine, PagedEngine)


@no_gpu
def test_a_refused_device_leaves_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.device='cuda' and torch"):
        run_train(
            load_config([TINY], [*SMALL, "model.device=cuda", f"run.output={tmp_path}"]), resume=None, display=False
        )
    assert list(tmp_path.iterdir()) == []


@no_gpu
def test_a_run_made_on_a_gpu_is_read_elsewhere_with_another_device(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_json("config.json", dump_resolved(load_config([TINY], [*SMALL, "model.device=cuda"])))
    with pytest.raises(ConfigError, match="--device cpu"):
        audit_run(folder.path)
    assert audit_run(folder.path, device="cpu").breaches == []
    _, config = load_run(folder.path, device="cpu")
    assert config.model.device == "cpu"
    assert load_run(folder.path)[1].model.device == "cuda"
    assert config == load_resolved(folder.path / "config.json", ["model.device=cpu"])
    with pytest.raises(ConfigError, match=r"model\.device is 'gpu'"):
        load_run(folder.path, device="gpu")


def test_every_engine_in_bfloat16_is_close_to_float32() -> None:
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }

    def score(dtype: str, build_engine: Callable[[PreTrainedModel], LocalEngine | PagedEngine]) -> np.ndarray:
        model = build_model("qwen3", {**shape, "head_dim": 8, "initializer_range": 0.1}, vocab_size=60, seed=0)
        engine = build_engine(model.to(getattr(torch, dtype)))
        params = SamplingParams(max_tokens=2, temperature=0.0, seed=0)
        return np.array(
            [
                asyncio.run(engine.generate(to_ids([7, 3, i]), params, session=Session("g", str(i)))).logprobs[0]
                for i in range(20)
            ]
        )

    engines: dict[str, Callable[[PreTrainedModel], LocalEngine | PagedEngine]] = {
        "modules": lambda model: PagedEngine(model, max_concurrency=1, max_context=64, fused=False),
        "fused": lambda model: PagedEngine(model, max_concurrency=1, max_context=64, fused=True),
        "local": lambda model: LocalEngine(model, max_concurrency=20, max_context=64),
    }
    exact = score("float32", engines["modules"])
    # bfloat16 rounds by up to 2^-9 of what it holds; some such roundings of logits around 1.
    assert {
        name: float(np.abs(score("bfloat16", engine) - exact).max()) < 0.05 for name, engine in engines.items()
    } == dict.fromkeys(engines, True)


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `pretend_checks.py` prints; see there and `pretend_device.py`."""
    pytest.importorskip("llguidance")
    command = [
        sys.executable,
        str(HERE / "pretend_checks.py"),
        str(tmp_path_factory.mktemp("pretended")),
        str(TINY),
        *SMALL,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def flatten(found: Any, path: str = "") -> dict[str, Any]:
    """Leaves by where they are."""
    if isinstance(found, dict | list):
        items = found.items() if isinstance(found, dict) else enumerate(found)
        return {key: value for name, each in items for key, value in flatten(each, f"{path}/{name}").items()}
    return {path: found}


@pytest.mark.slow
def test_a_mixture_of_devices_would_be_noticed(pretended: dict[str, Any]) -> None:
    assert set(pretended["noticed"].values()) == {True}
    assert {"adding", "indexing", "numpy", "mkldnn", "exact scoring"} <= set(pretended["noticed"])


@pytest.mark.slow
def test_engines_and_losses_keep_to_one_device(pretended: dict[str, Any]) -> None:
    here, there = pretended["here"], pretended["there"]
    for name in here:
        # On the CPU the fused decoder packs its float32 weights, and the steps attend with another kernel.
        if name not in ("steps", "replies, fused float32"):
            assert here[name] == there[name], name
    for own, other in zip(here["replies, fused float32"], there["replies, fused float32"], strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    assert {len(reply) for reply in here["replies, fused float32"]} == {
        12,
        18,
    }  # six tokens, log-probabilities, those without the grammar


@pytest.mark.slow
def test_every_kind_of_step_keeps_to_one_device(pretended: dict[str, Any]) -> None:
    here, there = (flatten(pretended[place]["steps"]) for place in ("here", "there"))
    assert here.keys() == there.keys()
    assert {key.split("/")[2] for key in here if key.startswith("/metrics")} == {
        "policy",
        "plain",
        "sft",
        "critic",
        "implicit",
        "pairs",
    }
    for key, value in here.items():
        assert value == (there[key] if isinstance(value, str) else pytest.approx(there[key], rel=1e-3, abs=1e-5)), key


@pytest.mark.slow
def test_a_whole_run_its_resumption_and_its_audits_keep_to_one_device(pretended: dict[str, Any]) -> None:
    run = pretended["run"]
    assert run["there"] == run["resumed"]
    here, there = flatten(run["here"]), flatten(run["there"])
    assert here.keys() == there.keys()
    # What measures rounding itself is rounding.
    for key in (key for key in here if "logprob_" not in key):
        assert here[key] == (
            there[key] if isinstance(here[key], str) else pytest.approx(there[key], rel=1e-3, abs=1e-5)
        ), key
    assert max(value for key, value in there.items() if key.endswith("logprob_gap_max")) < 1e-5
    assert run["breaches"] == []
    assert run["events"].count('"kind": "device", "text": "pretend"') == 2
