"""Trackers that misbehave, each in its own way, and one that writes to a file."""

import importlib
import os
import time

from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun


class Writing:
    """Writes one line per call to `heard.txt` of the run folder."""

    def open(self, run: TrackedRun, id: str | None) -> str:
        self._file = (run.path / "heard.txt").open("a", encoding="utf-8")
        self._write(f"open {id}")
        return id or "mine"

    def log(self, point: Point) -> None:
        self._write(f"log {point.step} {sorted(point.values)}")

    def show(self, table: Table) -> None:
        self._write(f"show {table.name} {[' '.join(row) for row in table.rows]}")

    def flush(self) -> None:
        self._write("flush")

    def close(self) -> None:
        self._write("close")

    def _write(self, line: str) -> None:
        print(line, file=self._file, flush=True)


class Raising(Writing):
    """Raises at the first point."""

    def log(self, point: Point) -> None:
        raise RuntimeError("quota exceeded")


class Hanging(Writing):
    """Never comes back from the first point."""

    def log(self, point: Point) -> None:
        time.sleep(3600)


class Dying(Writing):
    """Ends its process without a word."""

    def log(self, point: Point) -> None:
        os._exit(3)


class Needy(Writing):
    """Needs a package that nobody has."""

    def __init__(self) -> None:
        importlib.import_module("a_package_nobody_has")
