"""Weights & Biases: which run of it a run is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tracker_readers import read_wandb_records

OPEN = """
import sys
from pathlib import Path
from turnwise.config.shown import read_shown
from turnwise.reporting.trackers.tracker import TrackedRun
from turnwise.reporting.trackers.wandb import WandbTracker

path = Path(sys.argv[1])
tracker = WandbTracker()
print(tracker.open(TrackedRun(path=path, recipe=read_shown(path / "config.json")), None))
tracker.close()
"""
"""What the process of a tracker does first and last."""


def read_ids(run: Path) -> set[str]:
    """The ids of its runs in the files that `wandb sync` reads."""
    files = (run / "wandb").glob("offline-run-*/*.wandb")
    records = [record for file in files for record in read_wandb_records(file.read_bytes())]
    return {record.run.run_id for record in records if record.HasField("run")}


@pytest.mark.slow
def test_a_variable_of_the_shell_gives_no_two_runs_one_id(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from turnwise.config.load import dump_resolved
    from turnwise.config.run import RunConfig
    from turnwise.store.run_folder import RunFolder

    environment = {**os.environ, "WANDB_RUN_ID": "shared", "WANDB_RESUME": "must"}
    ids = []
    for name in ("first", "second"):
        folder = RunFolder.create(tmp_path / name)
        folder.write_json("config.json", dump_resolved(RunConfig()))
        command = [sys.executable, "-c", OPEN, str(folder.path)]
        said = subprocess.run(command, env=environment, check=True, timeout=150, capture_output=True, text=True).stdout
        ids.append(read_ids(folder.path))
        assert ids[-1] == {said.split()[-1]}
    assert len(ids[0] | ids[1]) == 2
    assert "shared" not in ids[0] | ids[1]
