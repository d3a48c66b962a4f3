"""The run folder that training writes: a new one, or one that is continued, held by this process alone."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from turnwise.building.checks import check_methods
from turnwise.config.continued import Change, adopt_recipe, change_options
from turnwise.config.load import change_resolved, dump_resolved, list_moves, load_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, StoreError
from turnwise.runs.build import find_device
from turnwise.runs.evaluate import name_label
from turnwise.runs.repair import mend_run
from turnwise.runs.roles import keeps_past
from turnwise.runs.start import prepare_new
from turnwise.store.journal import read_journal
from turnwise.store.run_folder import CONFIG, EVENTS, RunFolder, disk_error
from turnwise.store.run_lock import NO_LOCKS, POLL_S, RunLock, Tell, hold_run

AUTO: Final = "auto"
"""Continue the newest run of a recipe's name and seed, or start one."""
CHOICE_S = 60.0
"""Seconds in which another process that looks for the newest run has begun to write one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """How a run is to be continued."""

    run: Path | Literal["auto"]
    overrides: Sequence[str] = ()
    """`a.b=value` of options that may change then (`config.continued`)."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Such options by name."""
    device: str | None = None
    """None: that of the run."""
    ranks: int | None = None
    """None: those of the run."""
    wait_s: float = 0.0
    """Seconds to wait for a process that writes the run."""
    repair: bool = False
    """Whether a damaged run may go back to an earlier checkpoint (`repair`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run folder that this process writes."""

    folder: RunFolder
    config: RunConfig
    lock: RunLock
    is_new: bool
    changes: Sequence[Change] = ()
    """Options that are others from now on."""


@contextmanager
def open_run(config: RunConfig | None, resume: Continuation | None, *, tell: Tell) -> Iterator[OpenRun]:
    """Hold the folder of a new run of `config`, or of the one to continue, while training writes it.

    Raises ConfigError for what does not fit, StoreError while another process writes the run.
    """
    if config is None and (resume is None or resume.run == AUTO):
        raise ConfigError("nothing to train: name a recipe file, or a run folder with --resume")
    if resume is None:
        assert config is not None
        with _open_new(config) as opened:
            yield opened
    elif resume.run != AUTO:
        with _open_old(Path(resume.run), resume, None, tell) as opened:
            yield opened
    else:
        assert config is not None
        with ExitStack() as stack:
            choice = _begin_choice(config)
            try:
                run = find_newest(config)
                if run is None:
                    opened = stack.enter_context(_open_new(config))
            finally:
                os.close(choice)  # before another process is waited for, which may write for days
            if run is not None:
                opened = stack.enter_context(_open_old(run, resume, config, tell))
            yield opened


def _begin_choice(config: RunConfig) -> int:
    """Keep other processes from choosing a run of this name until the handle is closed. Raises StoreError."""
    path, deadline = Path(config.run.output) / f".{_name(config)}.lock", time.monotonic() + CHOICE_S
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(POLL_S)
                    continue
                os.close(handle)
                raise StoreError(
                    f"another process has been searching for a run of run.name={config.run.name!r} for {CHOICE_S:g} s "
                    f"and holds {path}; stop it, or name the run folder with --resume"
                ) from None
            except OSError as cause:
                if cause.errno not in NO_LOCKS:
                    raise
            return handle
    except StoreError:
        raise
    except OSError as cause:
        raise disk_error("lock", path, cause) from cause


@contextmanager
def _open_new(config: RunConfig) -> Iterator[OpenRun]:
    config = prepare_new(config).config  # before there is a run folder
    folder = create_folder(config)
    with hold_run(folder.path) as lock:
        folder.write_json(CONFIG, dump_resolved(config))
        yield OpenRun(folder=folder, config=config, lock=lock, is_new=True)


@contextmanager
def _open_old(run: Path, resume: Continuation, recipe: RunConfig | None, tell: Tell) -> Iterator[OpenRun]:
    folder = RunFolder.open(run)
    with hold_run(folder.path, wait_s=resume.wait_s, tell=tell) as lock:
        mend_run(folder, is_asked=resume.repair, tell=tell)
        config, changes = read_continued(folder, resume, recipe)
        config = check_methods(config)
        find_device(config)
        yield OpenRun(folder=folder, config=config, lock=lock, is_new=False, changes=changes)


def read_continued(
    folder: RunFolder, resume: Continuation, recipe: RunConfig | None = None
) -> tuple[RunConfig, list[Change]]:
    """The recipe by which a run goes on, and the options that are others from now on; writes nothing.

    `recipe` is the one that is to be continued, None where that is the run's own. Raises ConfigError naming an option
    that may not change, or not so.
    """
    config = load_resolved(folder.path / CONFIG)
    changes: list[Change] = []
    if recipe is not None:
        config, changes = adopt_recipe(config, check_methods(recipe), folder.path)
    if resume.overrides or resume.changes:
        config, more = change_options(config, resume.overrides, changes=resume.changes)
        changes += more
    by_option = {change.option: change for change in changes}
    if (steps := by_option.get("train.steps")) is not None:
        done = max(read_journal(folder.path).taken, default=0)
        if steps.after < done:
            raise ConfigError(f"{steps}: {folder.path} has already taken {done} steps; set at least {done}")
    if "train.checkpoint_every" in by_option and keeps_past(config):
        raise ConfigError(
            f"{by_option['train.checkpoint_every']} cannot change in a run that plays against its past, because its "
            "checkpoints are the snapshots it plays against"
        )
    # For this life only: the run's own recipe keeps where it began.
    return change_resolved(config, list_moves(device=resume.device, ranks=resume.ranks)), changes


def write_changes(opened: OpenRun) -> list[str]:
    """Put what changed into the run's config, and name its last evaluation anew; the lines for people and events."""
    if not opened.changes:
        return []
    folder = opened.folder
    changes = {change.option: change.after for change in opened.changes}
    # Without what holds for this life only.
    config = change_resolved(load_resolved(folder.path / CONFIG), changes=changes)
    lines = [f"from here on {change}" for change in opened.changes]
    for line in lines:
        folder.append_event("option", line)
    folder.write_json(CONFIG, dump_resolved(config))
    _name_evaluations(folder, opened.config)
    return lines


def _name_evaluations(folder: RunFolder, config: RunConfig) -> None:
    """Label evaluations by their step where it is the last one no more, and the other way round."""
    for path in sorted((folder.path / "evaluations").glob("heldout*_*.summary.json")):
        try:
            summary = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue  # a reader says so
        step = int(summary["step"])
        _, comma, control = str(summary["label"]).partition(", ")
        label = name_label(config, step) + comma + control
        if step and label != summary["label"]:
            folder.write_json(f"evaluations/{path.name}", {**summary, "label": label})


def create_folder(config: RunConfig) -> RunFolder:
    """A new run folder in `run.output`: name, seed and time, and a number where one second has several runs.

    Raises StoreError."""
    stem = Path(config.run.output) / f"{_name(config)}-{time.strftime('%Y%m%d-%H%M%S')}"
    for path in (stem, *(stem.with_name(f"{stem.name}-{number}") for number in range(2, 1000))):
        if path.exists():
            continue
        try:
            return RunFolder.create(path)
        except StoreError:
            if not (path / EVENTS).exists():
                raise
    raise StoreError(f"{stem} and 998 more already exist; change run.name or run.output")


def find_newest(config: RunConfig) -> Path | None:
    """The newest run of the recipe's name and seed in `run.output`; None where there is none."""
    pattern = re.compile(rf"{re.escape(_name(config))}-(\d{{8}}-\d{{6}})(?:-(\d+))?")
    found = []
    for path in Path(config.run.output).glob(f"{_escape_glob(_name(config))}-*"):
        match = pattern.fullmatch(path.name)
        if match and (path / CONFIG).is_file():
            found.append((match[1], int(match[2] or 1), path))
    return max(found)[2] if found else None


def _name(config: RunConfig) -> str:
    return f"{config.run.name}-seed{config.run.seed}"


def _escape_glob(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)
