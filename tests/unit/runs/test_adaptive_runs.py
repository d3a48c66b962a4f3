"""A run moves its coefficients and stores them in its checkpoints."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.training.state import STATE_FILE

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
KL = ["loss.kl.coefficient=0.5", "loss.kl.target=0.1", "loss.kl.horizon=100"]


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


def test_a_run_moves_its_coefficients(tmp_path: Path) -> None:
    small = [
        "model.config.hidden_size=32",
        "model.config.intermediate_size=32",
        "tokenizer.num_texts=100",
        "tokenizer.vocab_size=400",
    ]
    short = [
        "sft.steps=5",
        "sft.num_demonstrations=80",
        "sft.batch_size=16",
        "train.steps=2",
        "train.num_threads=1",
        "evaluate.tasks=0",
    ]
    others = [
        "loss.entropy_target=9",
        "loss.max_drift=0.5",
        "loss.recompute_old=true",
        "loss.correction.mode=second_moment",
    ]
    rollout = [
        "rollout.tasks_per_step=4",
        "rollout.group_size=4",
        "credit.method=otb",
        f"run.output={tmp_path}",
        "evaluate.controls={}",
    ]
    run = run_train(config(*KL, *small, *short, *others, *rollout), resume=None, display=False)
    with safe_open(run / "checkpoints" / "step_000002" / STATE_FILE, framework="pt") as file:
        moved = json.loads(file.metadata()["counters"])["credit"]["coefficients"]
    # Next to no divergence yet: two steps of 16 trajectories, error -0.2 each: 0.5 (1 - 0.2 * 16 / 100)^2. The entropy
    # is below 9 twice.
    assert moved["kl"] == pytest.approx(0.5 * (1 - 0.2 * 0.16) ** 2, rel=1e-6)
    assert moved["entropy"] == pytest.approx(0.01)
    assert audit_run(run).breaches == []
