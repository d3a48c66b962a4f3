"""`turnwise search` on a run of a few steps: what it writes is what it sampled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.core.paths import split_paths
from turnwise.core.types import Scored
from turnwise.evaluation.summary import is_right
from turnwise.runs.train import run_train
from turnwise.store.trajectories import load_groups
from turnwise_worlds.runs.search import SearchPlan, run_search

RECIPE = Path("planning/countdown")


@pytest.mark.slow
def test_a_search_compares_learns_and_accounts_for_every_token(tmp_path: Path) -> None:
    config = load_config(
        [RECIPE],
        [f"run.output={tmp_path}", "sft.steps=30", "sft.num_demonstrations=200", "evaluate.tasks=10"],
    )
    run = run_train(config, resume=None, display=False)
    shown: list[str] = []
    plan = SearchPlan(tasks=6, train_tasks=40, calls=8, value_steps=5, sft_steps=2)
    summary = run_search(run, plan, show=shown.append)
    assert json.loads((run / "search" / "summary.json").read_text())["points"] == summary["points"]
    assert {point["calls"] for row in summary["points"].values() for point in row} == {2, 4, 8}
    exact = summary["points"]["search, exact value"]
    assert [point["tasks"] for point in exact] == [6, 6, 6]
    for name, counts in summary["tokens"].items():
        groups = load_groups(run / "search", name)
        assert sum(counts.values()) == sum(t.num_sampled_tokens for group in groups for t in group.trajectories)
    # A search that finds the target says so: with the exact value no right end is passed over.
    right = 0
    for group in load_groups(run / "search", "heldout_exact"):
        [trajectory] = group.trajectories
        ends = [path.trajectory.reward for path in split_paths(trajectory)]
        found = any(isinstance(reward, Scored) and is_right(reward) for reward in ends)
        assert found == (isinstance(trajectory.reward, Scored) and is_right(trajectory.reward))
        right += found
    assert right == round(6 * exact[-1]["success"])
    assert (run / "search" / "checkpoints" / "step_000002" / "model.safetensors").exists()
    assert summary["ways"] > 0
