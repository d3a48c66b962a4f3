"""A run is extended, changed, found and held: what `--resume` does besides redoing steps."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from turnwise.config.load import load_config, load_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, StoreError
from turnwise.runs.audit import audit_run
from turnwise.runs.continuing import Continuation, create_folder, find_newest, open_run
from turnwise.runs.train import run_train
from turnwise.store.journal import read_journal
from turnwise.store.run_lock import hold_run

SMALL = [
    *("environment.name=turnwise.testing.notes:NotesFamily", "tokenizer.num_texts=50", "tokenizer.vocab_size=400"),
    *("rollout.tasks_per_step=2", "rollout.group_size=2", "rollout.max_tokens=64", "rollout.max_turn_tokens=8"),
    *("sft.steps=1", "sft.batch_size=2", "sft.num_demonstrations=2"),
    *("evaluate.tasks=2", "train.num_threads=1", "engine.num_threads=1", "engine.max_concurrency=4"),
    *("train.parity_every=0", "train.checkpoint_every=1", "train.decay=none"),
]


def recipe(output: Path, *overrides: str) -> RunConfig:
    return load_config([], [*SMALL, f"run.output={output}", *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step."""
    return run_train(recipe(tmp_path_factory.mktemp("runs"), "train.steps=1"), resume=None, display=False)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, in a folder of its own."""
    return Path(shutil.copytree(finished, tmp_path / finished.name))


def read_events(run: Path, kind: str) -> list[str]:
    rows = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [row["text"] for row in rows if row["kind"] == kind]


def test_a_finished_run_is_extended_and_audits_clean(run: Path) -> None:
    changed = Continuation(run=run, overrides=["train.steps=2", "train.keep_checkpoints=5"])
    assert run_train(None, resume=changed, display=False) == run
    assert sorted(read_journal(run).trained) == [1, 2]
    config = load_resolved(run / "config.json")
    assert (config.train.steps, config.train.keep_checkpoints) == (2, 5)
    assert read_events(run, "option") == [
        "from here on train.steps: 1 -> 2",
        "from here on train.keep_checkpoints: 2 -> 5",
    ]
    labels = {
        path.name.partition(".")[0]: json.loads(path.read_text())["label"]
        for path in run.glob("evaluations/heldout_*.summary.json")
    }
    assert labels == {"heldout_000000": "after SFT", "heldout_000001": "step 1", "heldout_000002": "after RL"}
    report = audit_run(run)
    assert not report.breaches, [str(breach) for breach in report.breaches]


def test_what_may_not_change_is_refused_and_changes_nothing(run: Path) -> None:
    before = (run / "config.json").read_bytes()
    for overrides, message in [
        (["train.lr=0.1"], r"train\.lr: .* cannot change when a run is continued"),
        (["train.steps=0"], rf"train\.steps: 1 -> 0: {run} has already taken 1 steps; set at least 1"),
    ]:
        with pytest.raises(ConfigError, match=message):
            run_train(None, resume=Continuation(run=run, overrides=overrides), display=False)
    assert (run / "config.json").read_bytes() == before
    assert read_events(run, "option") == []


def test_a_run_that_another_process_writes_is_refused_and_left_alone(run: Path) -> None:
    with hold_run(run):
        files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        with pytest.raises(StoreError, match=rf"^{run} is being written by process \d+ on "):
            run_train(None, resume=run, display=False)
        assert not audit_run(run).breaches, "readers need no leave"
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files


def test_a_new_run_is_held_and_told_of_before_anything_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Path] = []

    def refuse(*args: Any, **keywords: Any) -> None:
        [run] = told
        assert (run / "writer.json").exists()
        raise ConfigError("no")

    monkeypatch.setattr("turnwise.runs.train.build_system", refuse)
    with pytest.raises(ConfigError):
        run_train(
            recipe(tmp_path), resume=None, display=False, announce=lambda run, config: told.append(run)
        )
    assert list(tmp_path.iterdir()) == [], "a refused run leaves nothing"


def test_the_error_that_ends_a_run_is_among_its_events(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(*args: Any, **keywords: Any) -> None:
        raise RuntimeError("the disk\nis on fire")

    for error, event in [(break_, ("error", "RuntimeError: the disk is on fire")), (stop, ("stopped", ""))]:
        monkeypatch.setattr("turnwise.runs.train.build_system", error)
        with pytest.raises((RuntimeError, KeyboardInterrupt)):
            run_train(None, resume=run, display=False)
        assert read_events(run, event[0]) == [event[1]]


def stop(*args: Any, **keywords: Any) -> None:
    raise KeyboardInterrupt


def test_auto_continues_the_newest_run_of_name_and_seed(run: Path, tmp_path: Path) -> None:
    other = recipe(tmp_path, "run.seed=1", "train.steps=1")
    assert find_newest(other) is None
    wanted = recipe(tmp_path, "train.steps=1")
    name = run.name.rsplit("-", 2)[0]  # without date and time
    later = Path(shutil.copytree(run, run.with_name(f"{name}-29991231-235959")))
    again = Path(shutil.copytree(run, run.with_name(f"{name}-29991231-235959-10")))
    shutil.copytree(run, run.with_name(f"{name}-29991231-235959-9"))
    run.with_name(f"{name}-29991231-235959-11").mkdir()  # killed before its recipe was written
    assert find_newest(wanted) == again
    assert later.exists()
    with open_run(wanted, Continuation(run="auto"), tell=print) as opened:
        assert (opened.folder.path, opened.is_new, list(opened.changes)) == (again, False, [])
    with open_run(recipe(tmp_path, "train.steps=7"), Continuation(run="auto"), tell=print) as opened:
        assert [str(change) for change in opened.changes] == ["train.steps: 1 -> 7"]
    with pytest.raises(ConfigError, match=rf"{again} was made by another recipe: train\.lr: "):
        run_train(recipe(tmp_path, "train.lr=0.5"), resume=Continuation(run="auto"), display=False)


def test_auto_starts_a_run_where_there_is_none(tmp_path: Path) -> None:
    with open_run(recipe(tmp_path), Continuation(run="auto"), tell=print) as opened:
        assert opened.is_new
        # A second job of the same recipe finds it, and finds it taken.
        with (
            pytest.raises(StoreError, match="is being written by process"),
            open_run(recipe(tmp_path), Continuation(run="auto"), tell=print),
        ):
            pass
    assert find_newest(recipe(tmp_path)) == opened.folder.path


def test_runs_that_start_in_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    config = recipe(tmp_path)
    folders = {create_folder(config).path for _ in range(3)}
    assert len(folders) == 3


def test_nothing_to_train_is_said() -> None:
    for resume in (None, Continuation(run="auto")):
        with pytest.raises(ConfigError, match="nothing to train"):
            run_train(None, resume=resume, display=False)
