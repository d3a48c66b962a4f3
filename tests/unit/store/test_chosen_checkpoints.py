"""Which checkpoints stay, and which one a word means."""

import json
from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.core.errors import CheckpointError, ConfigError
from turnwise.store.checkpoint_folder import checkpoint_writer, list_checkpoints, prune
from turnwise.store.chosen_checkpoints import find_checkpoint_of, list_kept, rank_steps, read_successes


def make_run(path: Path, steps: range, successes: dict[int, float]) -> Path:
    for step in steps:
        with checkpoint_writer(path, step) as folder:
            (folder / "weights").write_text(str(step))
    (path / "evaluations").mkdir()
    for step, success in successes.items():
        rows = [{"kind": "easy", "success": 1.0}, {"kind": "all", "success": success}]
        (path / "evaluations" / f"heldout_{step:06d}.summary.json").write_text(json.dumps({"rows": rows}))
    return path


def test_the_best_are_those_of_the_highest_held_out_success(tmp_path: Path) -> None:
    run = make_run(tmp_path, range(0, 70, 10), {0: 0.1, 20: 0.5, 25: 0.9, 40: 0.8, 50: 0.5})
    (run / "evaluations" / "heldout_000060_search_off.summary.json").write_text('{"rows": []}')
    (run / "evaluations" / "heldout_000060.summary.json").write_text("cut of")
    assert read_successes(run) == {0: 0.1, 20: 0.5, 25: 0.9, 40: 0.8, 50: 0.5}
    assert rank_steps(read_successes(run)) == [25, 40, 50, 20, 0], "of equal ones the later"
    assert list_kept(run, best=2, every=30) == {0, 30, 40, 50, 60}, "step 25 has no checkpoint"
    prune(run, keep=1, always={0}, also=list_kept(run, best=1, every=30))
    assert [step for step, _ in list_checkpoints(run)] == [0, 30, 40, 60]


@pytest.mark.parametrize(("step", "found"), [(None, 60), ("latest", 60), ("best", 40), ("20", 20), (0, 0)])
def test_a_step_means_a_checkpoint(tmp_path: Path, step: int | str | None, found: int) -> None:
    run = make_run(tmp_path, range(0, 70, 10), {20: 0.5, 40: 0.8})
    assert find_checkpoint_of(run, step).name == f"step_{found:06d}"


def test_what_there_is_not_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", range(0, 20, 10), {15: 0.5})
    with pytest.raises(CheckpointError, match=r"so none is the best; .* has checkpoints for steps: 0, 10"):
        find_checkpoint_of(run, "best")
    with pytest.raises(CheckpointError, match=r"no checkpoint .*step_000007; .* steps: 0, 10"):
        find_checkpoint_of(run, 7)
    with pytest.raises(ConfigError, match=r"'bset' is not a step; use a number, 'latest' or 'best'"):
        find_checkpoint_of(run, "bset")
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        find_checkpoint_of(tmp_path, "best")


def test_a_best_checkpoint_needs_evaluations() -> None:
    with pytest.raises(ConfigError, match=r"train\.keep_best=1 ranks checkpoints .* evaluate\.every=0"):
        load_config([], ["train.keep_best=1"])
    assert load_config([], ["train.keep_best=1", "evaluate.every=5"]).train.keep_best == 1
