"""A short run of `recipes/mcp/tiny.toml`: a real server process answers, and the audit asks it everything again."""

import sys
from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train

ROOT = Path(__file__).parents[2]
SHORT = ["sft.steps=2", "sft.num_demonstrations=32", "sft.batch_size=8", "train.steps=2", "evaluate.tasks=4"]
SHORT += ["rollout.tasks_per_step=2", "rollout.group_size=4", "train.num_threads=1", "engine.num_threads=1"]
SHORT += ["evaluate.controls={}"]


def test_a_run_with_the_tools_of_a_server_passes_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    python = f"environment.args.servers.storehouse.command={sys.executable}"
    config = load_config([ROOT / "recipes" / "mcp" / "tiny.toml"], [*SHORT, python, f"run.output={tmp_path}"])
    report = audit_run(run_train(config, resume=None, display=False), replay_tools=True)
    assert report.breaches == []
    assert report.to_json()["ok"]
