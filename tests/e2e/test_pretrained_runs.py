"""A short run of `recipes/retool/smollm2.toml` with an adapter, on the real model, and its audit. Slow: it fetches the
model (100 MB) and trains 135 million parameters."""

from pathlib import Path

import pytest

from turnwise.config.catalog import CATALOG
from turnwise.config.load import load_config
from turnwise.models.fetch import fetch_model
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train

RECIPE = Path(__file__).parents[2] / "recipes" / "retool" / "smollm2.toml"
SHORT = ["sft.steps=2", "sft.num_demonstrations=8", "sft.batch_size=4", "train.steps=2", "evaluate.tasks=4"]
SHORT += ["rollout.tasks_per_step=2", "rollout.group_size=4", "rollout.max_turns=2", "evaluate.controls={}"]


@pytest.mark.slow
def test_a_run_of_smollm2_with_an_adapter_passes_the_audit(tmp_path: Path) -> None:
    fetch_model(CATALOG["smollm2-135m"])
    config = load_config([RECIPE], [*SHORT, "model.lora={}", f"run.output={tmp_path}"])
    report = audit_run(run_train(config, resume=None, display=False))
    assert report.breaches == []
    assert report.tallies["logprobs"].checked > 0
