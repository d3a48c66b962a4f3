"""`turnwise diagnose` on runs that are finished, interrupted, of one step, without metrics or evaluations."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import run_command

from turnwise.config.load import load_config
from turnwise.runs.diagnose import diagnose_run
from turnwise.runs.train import run_train

SMALL = [
    *("environment.name=turnwise.testing.notes:NotesFamily", "tokenizer.num_texts=50", "tokenizer.vocab_size=400"),
    *("rollout.tasks_per_step=2", "rollout.group_size=2", "rollout.max_tokens=64", "rollout.max_turn_tokens=8"),
    *("sft.steps=0", "evaluate.tasks=2", "train.num_threads=1", "engine.num_threads=1", "engine.max_concurrency=4"),
    *("train.parity_every=0", "train.checkpoint_every=0", "train.steps=2"),
    "loss.entropy_coefficient=0.1",  # so that every step has a gradient
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps from random weights."""
    output = tmp_path_factory.mktemp("runs")
    return run_train(load_config([], [*SMALL, f"run.output={output}"]), resume=None, display=False)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, in a folder of its own."""
    return Path(shutil.copytree(finished, tmp_path / finished.name))


def read_rows(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def write_rows(run: Path, rows: list[dict[str, object]]) -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_run_is_diagnosed_for_people_and_for_programs_and_nothing_is_written(run: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    said = run_command("diagnose", run)
    assert said.returncode == 0
    assert said.stdout.startswith("2 RL steps: success did not rise beyond chance")
    assert "not judged: 2 RL steps are too few to see a change; 4 are needed" in " ".join(said.stdout.split())
    report = json.loads(run_command("diagnose", run, "--json").stdout)
    assert (report["steps"], report["learned"]) == (2, False)
    assert sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*")) == before


def test_weights_that_moved_are_measured(run: Path) -> None:
    first = next(row for row in read_rows(run) if row["phase"] == "train")
    assert "train/served_share" not in first, "float32 weights have no masters"
    assert 0 < float(str(first["train/relative_update"])) < 1


def test_a_run_without_metrics_of_rl_is_refused_in_one_line(run: Path) -> None:
    write_rows(run, [row for row in read_rows(run) if row["phase"] != "train"])
    said = run_command("diagnose", run)
    assert said.returncode == 2
    assert "has no metrics of an RL step, so there is nothing to diagnose yet" in said.stderr
    (run / "metrics.jsonl").unlink()
    assert "has no metrics of an RL step" in run_command("diagnose", run).stderr


def test_a_damaged_comparison_is_named_with_the_remedy(run: Path) -> None:
    stored = run / "evaluations" / "compared_000002.json"
    stored.write_text("{")
    said = run_command("diagnose", run)
    assert said.returncode == 2
    assert "compared_000002.json" in said.stderr.replace("\n", "")
    stored.write_text('{"problem": "no task in common"}')
    assert run_command("diagnose", run).returncode == 0


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    said = run_command("diagnose", tmp_path / "nowhere")
    assert said.returncode == 2
    assert "is not a run folder" in said.stderr


def test_values_that_are_not_finite_are_left_out_and_named(run: Path) -> None:
    rows = [{**row, "train/entropy": None} if row["phase"] == "train" else row for row in read_rows(run)]
    write_rows(run, rows)
    assert "not finite in 2 steps, the first of them 1: train/entropy" in " ".join(diagnose_run(run).missing)


def test_a_run_without_evaluations_groups_or_ledger_is_diagnosed_by_its_metrics(run: Path) -> None:
    shutil.rmtree(run / "evaluations")
    shutil.rmtree(run / "groups")
    (run / "ledger.jsonl").unlink()
    missing = " ".join(diagnose_run(run).missing)
    assert "fewer than two held-out evaluations" in missing
    assert "no stored group of one role" in missing


def test_a_line_that_a_crash_cut_off_is_left_out(run: Path) -> None:
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 3, "phase": "tr')
    assert diagnose_run(run).num_steps == 2


def test_the_error_that_ended_a_run_is_evidence_until_it_is_resumed(run: Path) -> None:
    events = run / "events.jsonl"
    problem = "TrainingError: updates are below the resolution of the weights: each of the last 5 at train.lr=1e-10"
    events.write_text(events.read_text() + json.dumps({"time": 0, "kind": "error", "text": problem}) + "\n")
    assert diagnose_run(run).findings[0].cause == "frozen_weights"
    events.write_text(events.read_text() + json.dumps({"time": 1, "kind": "resumed", "text": ""}) + "\n")
    assert "frozen_weights" not in [finding.cause for finding in diagnose_run(run).findings]
