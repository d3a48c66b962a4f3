"""One process writes a run folder: the others are refused by name, or wait, and nobody is kept out by a dead one."""

import fcntl
import json
import os
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from turnwise.core.errors import StoreError
from turnwise.store import run_lock
from turnwise.store.run_folder import LOCK, WRITER
from turnwise.store.run_lock import Writer, hold_run, read_writer

OTHER = Writer(host="node7", process=4711, started="2026-01-02 03:04:05+0000", boot="of kernel", token="theirs")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that sleeping moves; nobody waits."""
    now = [1000.0]
    monkeypatch.setattr(run_lock, "_now", lambda: now[0])
    monkeypatch.setattr(run_lock, "_sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def leave(run: Path, writer: Writer) -> None:
    """A writer's file, as a process leaves it that is killed."""
    (run / WRITER).write_text(json.dumps(asdict(writer)))


def test_the_holder_is_named_and_its_file_goes_with_it(tmp_path: Path) -> None:
    with hold_run(tmp_path):
        writer = read_writer(tmp_path)
        assert writer is not None
        assert writer.process == os.getpid()
    assert read_writer(tmp_path) is None
    with hold_run(tmp_path):
        pass


def test_a_second_writer_is_refused_in_one_line_that_names_machine_and_process(tmp_path: Path) -> None:
    with hold_run(tmp_path):
        refusal = rf"being written by process {os.getpid()} on .* --wait SECONDS"
        with pytest.raises(StoreError, match=refusal) as caught, hold_run(tmp_path):
            pass
        assert "\n" not in str(caught.value)
        assert read_writer(tmp_path) is not None, "the refused one has removed the holder's file"


def test_a_second_writer_waits_for_its_deadline_and_no_longer(tmp_path: Path, clock: list[float]) -> None:
    told: list[str] = []
    with hold_run(tmp_path):
        with pytest.raises(StoreError), hold_run(tmp_path, wait_s=60, tell=told.append):
            pass
        assert 1060 <= clock[0] < 1061
    [text] = told
    assert text.startswith(f"waiting at most 60 s for process {os.getpid()} on ")


def test_a_waiting_writer_gets_the_folder_when_the_first_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hold_run(tmp_path)
    first.__enter__()
    monkeypatch.setattr(run_lock, "_sleep", lambda seconds: first.__exit__(None, None, None))
    with hold_run(tmp_path, wait_s=60):
        assert read_writer(tmp_path) is not None


def test_a_killed_writer_of_this_machine_keeps_nobody_out(tmp_path: Path, clock: list[float]) -> None:
    leave(tmp_path, replace(OTHER, boot=run_lock._describe_self().boot))
    with hold_run(tmp_path):
        assert clock[0] == 1000


def test_a_killed_writer_of_another_machine_is_watched_for_its_lease_and_then_replaced(
    tmp_path: Path, clock: list[float]
) -> None:
    leave(tmp_path, OTHER)
    told: list[str] = []
    with hold_run(tmp_path, tell=told.append):
        assert 1030 <= clock[0] < 1031
    assert told == [
        f"process 4711 on node7 (since 2026-01-02 03:04:05+0000) wrote {tmp_path} last and did not end cleanly; "
        "looking for 30 s whether it still writes"
    ]


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_living_writer_of_another_machine_is_seen_by_its_count(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch, has_locks: bool
) -> None:
    """Its lock is not seen here: locks of this machine alone, or none at all."""

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        leave(tmp_path, replace(OTHER, beats=int((clock[0] - 1000) // 5)))

    def refuse(handle: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    leave(tmp_path, OTHER)
    monkeypatch.setattr(run_lock, "_sleep", sleep)
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match="written by process 4711 on node7"), hold_run(tmp_path):
        pass
    assert clock[0] < 1006


def test_without_locks_the_folder_is_held_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold_run(tmp_path) as lock:
        lock.check()


def test_a_writer_that_slept_while_another_took_over_stops_before_its_next_decision(
    tmp_path: Path, clock: list[float]
) -> None:
    with hold_run(tmp_path) as lock:
        lock.check()
        leave(tmp_path, OTHER)
        clock[0] += 3600
        with pytest.raises(StoreError, match=r"taken over by process 4711 on node7 .* what it stored is kept"):
            lock.check()
    assert read_writer(tmp_path) == OTHER, "the loser removed the other's file"


def test_two_that_begin_at_once_without_shared_locks_are_told_apart_before_the_first_decision(tmp_path: Path) -> None:
    with hold_run(tmp_path) as lock:
        leave(tmp_path, OTHER)
        with pytest.raises(StoreError, match="taken over"):
            lock.check()


def test_the_count_grows_while_the_folder_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "BEAT_S", 0.001)
    with hold_run(tmp_path):
        grown = threading.Event()
        while not grown.wait(0.002):
            writer = read_writer(tmp_path)
            if writer is not None and writer.beats >= 2:
                grown.set()


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot lock"), hold_run(tmp_path / "missing"):
        pass


def test_a_reader_of_the_lock_file_does_not_free_it(tmp_path: Path) -> None:
    """As a lock of `fcntl.lockf` would be, by any close of the file in the same process."""
    with hold_run(tmp_path):
        (tmp_path / LOCK).read_bytes()
        with (tmp_path / LOCK).open("rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
