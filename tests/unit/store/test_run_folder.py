from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import StoreError
from turnwise.store.advantages import load_advantages
from turnwise.store.groups import GroupStore
from turnwise.store.journal import read_journal
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import RunFolder, append_line, write_bytes_atomic


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_a_folder_that_holds_anything_is_refused_and_untouched(tmp_path: Path) -> None:
    taken = tmp_path / "run"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match=r"run already holds .*--resume"):
        RunFolder.create(taken)
    assert [file.name for file in taken.iterdir()] == ["thesis.txt"]


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    RunFolder.create(tmp_path / "run")  # an empty one is fine
    with pytest.raises(StoreError, match="already holds"):
        RunFolder.create(tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot create the run folder .*file/run"):
        RunFolder.create(tmp_path / "file" / "run")


def test_open_wants_a_run(run: RunFolder) -> None:
    with pytest.raises(StoreError, match=r"not a run folder"):
        RunFolder.open(run.path)
    run.write_json("config.json", {"a": 1})
    assert RunFolder.open(run.path) == run


def test_what_lies_in_a_run_or_around_it_names_the_run(run: RunFolder) -> None:
    run.write_json("config.json", {"a": 1})
    checkpoint = run.path / "checkpoints" / "step_000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text("{}")  # that of the model
    for path in (checkpoint, checkpoint.parent, run.path / "config.json", run.path.parent):
        with pytest.raises(StoreError, match=rf"{path} is not a run folder: did you mean {run.path}\?"):
            RunFolder.open(path)


def test_metrics_come_back_and_what_is_not_finite_is_null(run: RunFolder) -> None:
    assert run.read_metrics() == []
    run.append_metrics(1, "train", {"a": 0.5, "b": math.nan, "c": -math.inf})
    run.append_metrics(2, "train", {"a": 0.1 + 0.2})
    first, second = run.read_metrics()
    assert (first["step"], first["phase"], first["a"], first["b"], first["c"]) == (1, "train", 0.5, None, None)
    assert second["a"] == 0.1 + 0.2  # bit for bit
    assert "NaN" not in (run.path / "metrics.jsonl").read_text()


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(1, 80))
def test_a_line_torn_at_any_byte_is_left_out_and_the_next_one_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    run = RunFolder.create(tmp_path_factory.mktemp("runs") / "run")
    for step in (1, 2):
        run.append_metrics(step, "train", {"a": 0.25})
    path = run.path / "metrics.jsonl"
    whole = path.read_bytes()
    line = len(whole.splitlines(keepends=True)[-1])
    path.write_bytes(whole[: len(whole) - min(cut, line)])
    assert [row["step"] for row in run.read_metrics()] == [1]
    run.append_metrics(3, "train", {"a": 0.5})
    assert [row["step"] for row in run.read_metrics()] == [1, 3]


@pytest.mark.parametrize("broken", [b'{"step": 2, "pha\n', b"[1]\n", b"\xff\xfe\n", b"\n", b"\x00\x00\n"])
def test_any_other_broken_line_is_named(run: RunFolder, broken: bytes) -> None:
    run.append_metrics(1, "train", {"a": 1.0})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(broken)
    run.append_metrics(3, "train", {"a": 1.0})
    with pytest.raises(StoreError, match=r"metrics\.jsonl, line 2 "):
        run.read_metrics()


def test_truncate_forgets_later_steps_only(run: RunFolder) -> None:
    for step in range(1, 4):
        run.append_metrics(step, "sft", {"sft/loss": 1.0})
    run.append_metrics(0, "evaluate", {"evaluate/success": 0.1})
    for step in range(1, 4):
        run.append_metrics(step, "train", {"train/loss": 1.0})
        for suffix in (".npz", ".jsonl"):
            write_bytes_atomic(run.path / "steps" / f"step_{step:06d}{suffix}", b"x")
            write_bytes_atomic(run.path / "groups" / "000" / f"{step:09d}{suffix}", b"x")
        write_bytes_atomic(run.path / "evaluations" / f"heldout_{step:06d}_search_off.summary.json", b"x")
    run.truncate(after_step=1)
    rows = [(row["phase"], row["step"]) for row in run.read_metrics()]
    assert rows == [("sft", 1), ("sft", 2), ("sft", 3), ("evaluate", 0), ("train", 1)]
    assert [f.name for f in sorted((run.path / "steps").iterdir())] == ["step_000001.jsonl", "step_000001.npz"]
    assert [f.name for f in sorted((run.path / "evaluations").iterdir())] == ["heldout_000001_search_off.summary.json"]
    run.truncate(after_step=-1)
    assert run.read_metrics() == []
    assert list((run.path / "steps").iterdir()) == []
    assert len(list((run.path / "groups" / "000").iterdir())) == 6, "groups stay: steps are redone from them"


def test_a_run_of_another_format_is_refused(run: RunFolder) -> None:
    run.write_json("config.json", {"a": 1})
    run.write_json("format.json", {"format": 3})
    with pytest.raises(StoreError, match=r"run has format 3, but this version of Turnwise reads format 2"):
        RunFolder.open(run.path)
    (run.path / "format.json").unlink()
    for read in (RunFolder.open, read_journal, load_accounts, GroupStore, lambda path: load_advantages(path, 1)):
        with pytest.raises(StoreError, match=r"format 1 \(it has no format number\), .*the version that made it"):
            read(run.path)
    run.write_json("config.json", {"model_type": "qwen3"})
    with pytest.raises(StoreError, match=r"is a model folder, not a run folder; name a folder made by"):
        RunFolder.open(run.path)
    (run.path / "format.json").write_text("{}")
    with pytest.raises(StoreError, match=r"format.json"):
        RunFolder.open(run.path)


def test_a_refused_run_leaves_nothing(run: RunFolder) -> None:
    run.write_json("config.json", {"a": 1})
    run.discard()
    assert not run.path.exists()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_bytes_atomic(path, b"old")
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from turnwise.core.errors import StoreError\n"
        "from turnwise.store.run_folder import append_line, write_bytes_atomic\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "folder = Path(sys.argv[1])\n"
        "append_line(folder / 'metrics.jsonl', {'step': 1})\n"
        "for attempt in (lambda: write_bytes_atomic(folder / 'config.json', b'x' * 1000),\n"
        "                lambda: append_line(folder / 'metrics.jsonl', {'text': 'x' * 1000})):\n"
        "    try:\n"
        "        attempt()\n"
        "        print('no error')\n"
        "    except StoreError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert f"cannot write {path}: {os.strerror(errno.EFBIG)}; free disk space" in first
    assert "cannot append to" in second
    assert path.read_bytes() == b"old"
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "metrics.jsonl"]


def test_appends_continue_a_file(tmp_path: Path) -> None:
    for number in range(3):
        append_line(tmp_path / "log.jsonl", {"n": number, "text": "é\n"})
    assert [json.loads(line)["n"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [0, 1, 2]
