"""A real run in each tracker, read back with the tracker's own package: trained, stopped in between, continued."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from interrupted import at_step
from test_train import recipe
from tracker_readers import PACKAGES, READERS

from turnwise.building.checks import check_methods
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.reporting.trackers.follow import send_run
from turnwise.runs.build import build_system
from turnwise.runs.recorders import open_trackers
from turnwise.runs.train import Run, run_train
from turnwise.store.run_folder import RunFolder, read_lines

SLOW = ("wandb", "mlflow", "trackio")


@pytest.fixture
def _trackio_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for module in [name for name in sys.modules if name.split(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, module)


@pytest.mark.usefixtures("_trackio_here")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PACKAGES]
)
def test_a_run_that_is_stopped_and_continued_is_one_run_of_the_tracker(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    config = check_methods(recipe(tmp_path, f'trackers.names=["{name}"]', "trackers.close_timeout_s=120.0"))
    folder = RunFolder.create(tmp_path / "run")
    folder.write_json("config.json", dump_resolved(config))
    # Stopped after step 3, whose metrics the tracker has; the last checkpoint is that of step 2.
    with pytest.raises(KeyboardInterrupt), open_trackers(config, folder, at_step(3)) as listeners:
        asyncio.run(Run(build_system(config, training=True), folder, listeners).run())
    run_train(None, resume=folder.path, display=False)

    events = list(read_lines(folder.path / "events.jsonl"))
    assert [row["text"] for row in events if row["kind"] == "tracker"] == []
    shown = READERS[name](folder.path)
    assert shown.name == folder.path.name
    assert float(shown.options["train.lr"]) == config.train.lr
    assert [step for step, _ in shown.points["sft/loss"]] == list(range(1, 9))
    assert [step for step, _ in shown.points["rollout/reward"]] == [1, 2, 3, 4], "step 3 was redone and is shown once"
    rows = folder.read_metrics()
    stored = [row["rollout/reward"] for row in rows if row["phase"] == "train"]
    assert [value for _, value in shown.points["rollout/reward"]] == pytest.approx(stored)
    assert [step for step, _ in shown.points["evaluate/all/success"]] == [0, 4]
    assert {step for step, _ in shown.points["evaluate/search_off/all/high"]} == {4}
    text = "\n".join(shown.texts)
    assert "success [95% interval]" in text
    assert "continuing after step 2" in text
    assert "user:" in text, "transcripts are shown"

    before = {metric: len(points) for metric, points in shown.points.items()}
    send_run(folder.path, name, overrides=[], start_anew=False)
    after = READERS[name](folder.path)
    assert {metric: len(points) for metric, points in after.points.items()} == before, "nothing is sent twice"


@pytest.mark.slow
def test_runs_that_start_side_by_side_share_one_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    program = "import sys, pathlib; from turnwise.reporting.trackers.follow import send_run\n"
    program += "send_run(pathlib.Path(sys.argv[1]), 'mlflow', overrides=[], start_anew=False)"
    processes = []
    for name in ("one", "two"):
        folder = RunFolder.create(tmp_path / name)
        folder.write_json("config.json", dump_resolved(RunConfig()))
        folder.append_metrics(1, "train", {"rollout/reward": 0.5, "evaluate//success": 1.0})
        processes.append(subprocess.Popen([sys.executable, "-c", program, str(folder.path)]))
    assert [process.wait(300) for process in processes] == [0, 0]
    shown = [READERS["mlflow"](tmp_path / name) for name in ("one", "two")]
    assert [each.points["rollout/reward"] for each in shown] == [[(1, 0.5)], [(1, 0.5)]]
