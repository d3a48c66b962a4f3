"""What every `Recorder` does: takes each kind of event, leaves it as it is, and keeps the order."""

import contextlib
import io
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from tracker_readers import PACKAGES, READERS

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import StoreError
from turnwise.core.events import Evaluated, Event, GroupEnds, Note, PhaseBegins, StepEnds
from turnwise.core.protocols import Recorder
from turnwise.reporting.console import Display
from turnwise.runs.recorders import FolderRecorder, Recorders, open_trackers
from turnwise.store.run_folder import RunFolder, read_lines

ROW = {"kind": "all", "n": 4, "success": 0.5, "low": 0.2, "high": 0.8, "tool_calls": 1.0}
EVENTS: tuple[Event, ...] = (
    PhaseBegins(phase="sft", total=1),
    StepEnds(step=1, phase="sft", values={"sft/loss": 2.5}),
    PhaseBegins(phase="rollout"),
    Note(kind="parity", text="parity before step 1: 4 tokens [mean 0]"),
    StepEnds(step=1, phase="train", values={"rollout/reward": 0.25, "train/entropy": math.nan, "mine/odd": math.inf}),
    GroupEnds(draw=7, fate="trained", rewards=(1.0, None), version=0),
    GroupEnds(draw=8, fate="late", rewards=(), version=0),
    PhaseBegins(phase="evaluate"),
    StepEnds(step=1, phase="evaluate", values={"evaluate/success": 0.5}),
    Evaluated(step=1, label="after RL", summary={"name": "heldout_000001", "rows": [ROW]}),
)
"""Every kind of event, as a run sends them."""

SLOW = {"mlflow": pytest.mark.slow, "wandb": pytest.mark.slow}
Build = Callable[[Path], tuple[Recorder, Callable[[], str]]]


def build_folder(path: Path) -> tuple[Recorder, Callable[[], str]]:
    folder = RunFolder.create(path / "run")

    def read() -> str:
        events = [f"{row['kind']}: {row['text']}" for row in read_lines(folder.path / "events.jsonl")]
        rows = [f"{row['phase']} {row['step']}" for row in folder.read_metrics()]
        return "\n".join(events + rows)

    return FolderRecorder(folder), read


def build_display(path: Path, *, terminal: bool = False) -> tuple[Recorder, Callable[[], str]]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, highlight=False, width=200)
    return Display(total_steps=1, title="[demo]", console=console), stream.getvalue


def build_live_display(path: Path) -> tuple[Recorder, Callable[[], str]]:
    return build_display(path, terminal=True)


def build_several(path: Path) -> tuple[Recorder, Callable[[], str]]:
    folder, read_folder = build_folder(path)
    display, read_display = build_display(path)
    return Recorders([folder, display]), lambda: f"{read_folder()}\n{read_display()}"


def build_tracker(path: Path, name: str) -> tuple[Recorder, Callable[[], str]]:
    """A tracker beside the folder that it follows; reading ends it."""
    pytest.importorskip(name)
    folder = RunFolder.create(path / "run")
    config = RunConfig.model_validate({"trackers": {"names": [name], "close_timeout_s": 120.0}})
    folder.write_json("config.json", dump_resolved(config))
    stack = contextlib.ExitStack()
    always = FolderRecorder(folder)
    listeners = stack.enter_context(open_trackers(config, folder, Recorders([])))

    def read() -> str:
        stack.close()
        failures = [row["text"] for row in read_lines(folder.path / "events.jsonl") if row["kind"] == "tracker"]
        assert failures == []
        return "\n".join(READERS[name](folder.path).texts)

    return Recorders([always, listeners]), read


BUILDERS = [
    build_folder,
    build_display,
    build_live_display,
    build_several,
    *(pytest.param(partial(build_tracker, name=name), id=name, marks=SLOW.get(name, ())) for name in PACKAGES),
]


@pytest.fixture(autouse=True)
def _trackio_writes_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers and its process; the package reads the variable when it is imported."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for module in [name for name in sys.modules if name.split(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, module)


@pytest.mark.parametrize("build", BUILDERS)
def test_every_kind_of_event_is_taken(build: Build, tmp_path: Path) -> None:
    recorder, read = build(tmp_path)
    before = [repr(event) for event in EVENTS]
    for event in EVENTS:
        assert recorder.record(event) is None  # type: ignore[func-returns-value]
    assert [repr(event) for event in EVENTS] == before
    assert "parity before step 1: 4 tokens [mean 0]" in read()


@pytest.mark.parametrize("build", BUILDERS)
def test_notes_are_kept_in_order_and_what_is_kept_does_not_depend_on_phases(build: Build, tmp_path: Path) -> None:
    recorder, read = build(tmp_path)
    for number in range(3):
        recorder.record(Note(kind="alarm", text=f"step {number}: alarm"))
    text = read()
    assert [text.count(f"step {number}: alarm") for number in range(3)] == [1 + (build is build_several)] * 3
    assert text.index("step 0: alarm") < text.index("step 1: alarm") < text.index("step 2: alarm")


def test_the_folder_keeps_every_metric_and_null_where_a_number_is_not_finite(tmp_path: Path) -> None:
    recorder, _ = build_folder(tmp_path)
    for event in EVENTS:
        recorder.record(event)
    rows = RunFolder(tmp_path / "run").read_metrics()
    assert [(row["phase"], row["step"]) for row in rows] == [("sft", 1), ("train", 1), ("evaluate", 1)]
    assert (rows[1]["rollout/reward"], rows[1]["train/entropy"], rows[1]["mine/odd"]) == (0.25, None, None)


def test_a_display_shows_steps_notes_and_evaluations() -> None:
    recorder, read = build_display(Path())
    for event in EVENTS:
        recorder.record(event)
    text = read().replace("\u00a0", " ")
    assert "sft 1/1  loss 2.500" in text
    assert "step 1/1  reward 0.25" in text
    assert "held-out success after RL: 50.0% [20.0, 80.0] on 4 tasks" in text
    recorder.record(Note(kind="device", text="cpu with 8 threads"))
    assert "8 threads" not in read(), "the device is noted in the folder only"


class Failing:
    """Cannot keep anything."""

    def record(self, event: Event) -> None:
        raise StoreError("the disk is full")


def test_what_must_be_kept_and_cannot_be_is_raised_before_others_hear_of_it() -> None:
    display, read = build_display(Path())
    with pytest.raises(StoreError, match="the disk is full"):
        Recorders([Failing(), display]).record(Note(kind="alarm", text="unheard"))
    assert read() == ""


def test_a_folder_that_is_gone_is_an_error_of_the_store(tmp_path: Path) -> None:
    recorder, _ = build_folder(tmp_path)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="--resume"):
        recorder.record(EVENTS[1])
    display, _ = build_display(tmp_path)
    display.record(EVENTS[1])
