"""The process of a tracker, with real processes: what it hears, and that none of its failures reaches the run."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrackerError
from turnwise.core.events import Event, Note, PhaseBegins, StepEnds
from turnwise.reporting.trackers.follow import send_run
from turnwise.reporting.trackers.lock import hold
from turnwise.reporting.trackers.mlflow import Names
from turnwise.reporting.trackers.recorder import TrackerRecorder, close_trackers
from turnwise.reporting.trackers.registry import build_tracker
from turnwise.reporting.trackers.trackio import at_home
from turnwise.runs.recorders import FolderRecorder, Recorders, open_trackers
from turnwise.store.run_folder import RunFolder, read_lines


@pytest.fixture(autouse=True)
def _children_import_own_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *sys.path]))
    monkeypatch.syspath_prepend(here)


def make_run(path: Path, **trackers: object) -> RunFolder:
    folder = RunFolder.create(path / "run")
    folder.write_json("config.json", dump_resolved(RunConfig.model_validate({"trackers": trackers})))
    return folder


def heard(folder: RunFolder) -> list[str]:
    path = folder.path / "heard.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def wait_for(condition: object, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)


def test_a_run_is_followed_and_finished(tmp_path: Path) -> None:
    folder = make_run(tmp_path, names=["own_trackers:Writing"])
    config = RunConfig.model_validate({"trackers": {"names": ["own_trackers:Writing"]}})
    with open_trackers(config, folder, FolderRecorder(folder)) as recorder:
        assert not (folder.path / "trackers").exists(), "nothing starts before there is something to send"
        recorder.record(PhaseBegins(phase="train"))
        recorder.record(StepEnds(step=1, phase="train", values={"rollout/reward": 0.5}))
        wait_for(lambda: "log 1 ['rollout/reward']" in heard(folder))
        recorder.record(StepEnds(step=2, phase="train", values={"rollout/reward": 0.75}))
    lines = [line for line in heard(folder) if line != "flush"]
    assert lines[0] == "open None"
    assert [line for line in lines if line.startswith("log")] == [
        "log 1 ['rollout/reward']",
        "log 2 ['rollout/reward']",
    ]
    assert lines[-1] == "close"
    assert not [row for row in read_lines(folder.path / "events.jsonl") if row["kind"] == "tracker"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Raising", "RuntimeError: quota exceeded"),
        ("Dying", "it said nothing"),
        ("Hanging", "did not finish in time"),
        ("Needy", "No module named 'a_package_nobody_has'"),
        ("Absent", "has no 'Absent'"),
    ],
)
def test_a_tracker_that_fails_costs_one_note(tmp_path: Path, name: str, reason: str) -> None:
    folder = make_run(tmp_path)
    always = FolderRecorder(folder)
    tracker = TrackerRecorder(folder.path, f"own_trackers:{name}", report=always.record)
    recorder = Recorders([always, tracker])
    started = time.monotonic()
    for step in range(1, 200):
        recorder.record(StepEnds(step=step, phase="train", values={"rollout/reward": 0.5}))
    assert time.monotonic() - started < 10, "the run does not wait for a tracker"
    if name == "Hanging":
        wait_for(lambda: heard(folder) == ["open None"])
        close_trackers([tracker], timeout_s=0.3)
    else:
        close_trackers([tracker], timeout_s=60)
    recorder.record(StepEnds(step=200, phase="train", values={}))
    assert len(folder.read_metrics()) == 200
    [note] = [row["text"] for row in read_lines(folder.path / "events.jsonl") if row["kind"] == "tracker"]
    assert note.startswith(f"tracker own_trackers:{name}: ")
    assert reason in note
    assert note.endswith(f"`turnwise track {folder.path} --to own_trackers:{name}` sends them again")


def test_a_failure_is_noted_during_the_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    notes: list[Event] = []
    tracker = TrackerRecorder(folder.path, "own_trackers:Dying", report=notes.append)
    folder.append_metrics(1, "train", {"rollout/reward": 0.5})

    def note_comes() -> bool:
        tracker.record(Note(kind="alarm", text=""))
        return bool(notes)

    wait_for(note_comes)
    close_trackers([tracker], timeout_s=5)
    assert len(notes) == 1


def test_full_pipes_do_not_stop_a_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    tracker = TrackerRecorder(folder.path, "own_trackers:Hanging", report=lambda event: None)
    folder.append_metrics(1, "train", {"rollout/reward": 0.5})
    tracker.record(Note(kind="alarm", text=""))
    wait_for(lambda: heard(folder) == ["open None"])
    started = time.monotonic()
    for _ in range(100_000):  # more bytes than a pipe holds (65,536)
        tracker.record(Note(kind="alarm", text=""))
    assert time.monotonic() - started < 30
    close_trackers([tracker], timeout_s=0.1)


PARENT = """
import sys, time
from pathlib import Path
from turnwise.core.events import Note
from turnwise.reporting.trackers.recorder import TrackerRecorder
tracker = TrackerRecorder(Path(sys.argv[1]), "own_trackers:Writing", report=print)
tracker.record(Note(kind="alarm", text=""))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_run_is_sent_to_its_end_and_the_next_process_continues(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    folder.append_metrics(1, "train", {"rollout/reward": 0.5})
    with subprocess.Popen([sys.executable, "-c", PARENT, str(folder.path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        wait_for(lambda: "flush" in heard(folder))
        folder.append_metrics(2, "train", {"rollout/reward": 0.5})
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: "close" in heard(folder))
    assert [line for line in heard(folder) if line.startswith("log")] == [
        "log 1 ['rollout/reward']",
        "log 2 ['rollout/reward']",
    ]
    folder.append_metrics(3, "train", {"rollout/reward": 0.5})
    assert send_run(folder.path, "own_trackers:Writing", overrides=[], start_anew=False) == "mine"
    after = heard(folder)[heard(folder).index("close") + 1 :]
    assert after == ["open mine", "log 3 ['rollout/reward']", "flush", "close"]


def test_a_stored_run_can_be_sent_again_from_the_start(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    folder.append_metrics(1, "train", {"rollout/reward": 0.5})
    for start_anew in (False, True, False):
        send_run(folder.path, "own_trackers:Writing", overrides=[], start_anew=start_anew)
    logged = ["open None", "log 1 ['rollout/reward']", "show notes ['created ']", "flush", "close"]
    assert heard(folder) == [*logged, *logged, "open mine", "close"]


def test_what_a_tracker_raises_is_named(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    folder.append_metrics(1, "train", {"rollout/reward": 0.5})
    with pytest.raises(TrackerError, match="tracker own_trackers:Raising: RuntimeError: quota exceeded"):
        send_run(folder.path, "own_trackers:Raising", overrides=[], start_anew=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", "tracker 'tensorbord' is unknown; use one of tensorboard, wandb, mlflow, trackio"),
        ("no_such_module:Tracker", "No module named 'no_such_module'"),
        ("own_trackers:None_", "has no 'None_'"),
        ("misspelt_trackers:Tracker", r"tracker='misspelt_trackers:Tracker' cannot be imported.*SyntaxError"),
    ],
)
def test_a_tracker_that_does_not_exist(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misspelt_trackers.py").write_text("class Tracker\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=message):
        build_tracker(name)


@pytest.mark.parametrize("installed", [None, "0.0.6"])
def test_a_missing_or_old_package_names_the_remedy(installed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def version(name: str) -> str:
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr("turnwise.reporting.trackers.registry.version", version)
    with pytest.raises(ConfigError, match=r"needs the package trackio>=0\.30.*pip install 'turnwise\[trackio\]'"):
        build_tracker("trackio")


def test_lowest_versions_are_those_of_the_extras() -> None:
    import tomllib

    from turnwise.reporting.trackers.registry import _LOWEST

    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, lowest in _LOWEST.items():
        assert project["optional-dependencies"][name] == [f"{name}>={'.'.join(map(str, lowest))}"]


def test_a_recipe_names_each_tracker_once() -> None:
    with pytest.raises(ValueError, match="names a tracker twice"):
        RunConfig.model_validate({"trackers": {"names": ["wandb", "wandb"]}})


def test_weights_and_biases_takes_no_path_as_project() -> None:
    with pytest.raises(ValueError, match=r"project='org/agents': a Weights & Biases project cannot contain /"):
        RunConfig.model_validate({"trackers": {"names": ["wandb"], "project": "org/agents"}})
    assert RunConfig.model_validate({"trackers": {"names": ["mlflow"], "project": "org/agents"}})


@pytest.mark.parametrize("name", ["tensorboard", "prometheus"])
def test_what_lies_in_the_run_folder_moves_with_it(tmp_path: Path, name: str) -> None:
    if name == "tensorboard":
        pytest.importorskip(name)
    old, new = tmp_path / "old" / "run", tmp_path / "new"
    folder = make_run(tmp_path / "old")
    folder.append_metrics(1, "train", {"rollout/reward": 0.5})
    send_run(folder.path, name, overrides=[], start_anew=False)
    old.rename(new)
    RunFolder.open(new).append_metrics(2, "train", {"rollout/reward": 0.75})
    assert Path(send_run(new, name, overrides=[], start_anew=False)).parent == new
    assert not old.exists()


def test_mlflow_has_a_name_of_its_own_for_every_metric() -> None:
    names = Names()
    taken = ["rollout/reward", "evaluate/数学/success", "timing(s)/gen"]
    assert [names.find(name) for name in taken] == ["rollout/reward", "evaluate/数学/success", "timing_s_/gen"]
    paths = ["evaluate//success", "evaluate/../success", "/a", "b/"]
    assert [re.sub("_[0-9a-f]{8}$", "_#", names.find(name)) for name in paths] == [
        "evaluate/_/success",
        "evaluate/_/success_#",
        "_/a",
        "b/_",
    ]
    long = ["k" * 300 + end for end in "ab"]
    found = [names.find(name) for name in long]
    assert [len(name) for name in found] == [250, 250]
    assert len(set(found)) == 2
    assert [names.find(name) for name in long] == found


def test_trackio_stays_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://elsewhere")
    with at_home():
        assert "TRACKIO_SERVER_URL" not in os.environ
    assert os.environ["TRACKIO_SERVER_URL"] == "http://elsewhere"


def test_a_file_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold(path, 0.0), pytest.raises(TimeoutError, match="another process holds"), hold(path, 0.0):
        pass
    with hold(path, 0.0):
        pass
