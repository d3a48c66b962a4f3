"""Prometheus: the last value of every metric in a text file, which node_exporter's textfile collector reads.

No server is started and no port opened: link `metrics.prom` of the run folder into the collector's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from turnwise.core.metrics import define
from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun, clean_text
from turnwise.store.run_folder import write_bytes_atomic

FILE = "metrics.prom"


class PrometheusTracker:
    """Implements `Tracker`. The id is the path of the file. Tables are not shown: metrics have no text."""

    def __init__(self) -> None:
        self._path = Path()
        self._run = ""
        self._values: dict[str, float] = {}

    def open(self, run: TrackedRun, id: str | None) -> str:
        """See `Tracker.open`. A process that continues a run starts from what it is sent, even if the run was moved."""
        self._path = run.path / FILE
        self._run = run.name
        return str(self._path)

    def log(self, point: Point) -> None:
        """See `Tracker.log`."""
        self._values |= {**point.values, "step": point.step, "time": point.time}

    def show(self, table: Table) -> None:
        """See `Tracker.show`."""

    def flush(self) -> None:
        """See `Tracker.flush`."""
        write_bytes_atomic(self._path, format_metrics(self._values, run=self._run).encode())

    def close(self) -> None:
        """See `Tracker.close`."""


def format_metrics(values: Mapping[str, float], *, run: str) -> str:
    """Gauges in Prometheus' text format, one sample each, with the run as label; timestamps are not allowed there.

    If metric names differ only in characters that Prometheus refuses, only the last of these metrics is kept."""
    lines: dict[str, str] = {}
    label = clean_text(run).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    for name, value in values.items():
        definition = define(name)
        key = "turnwise_" + re.sub(r"[^a-zA-Z0-9_]", "_", name)
        text = f"{definition.text} ({definition.unit})" if definition.unit else definition.text
        text = clean_text(text).replace("\\", r"\\").replace("\n", " ")
        lines[key] = f'# HELP {key} {text}\n# TYPE {key} gauge\n{key}{{run="{label}"}} {value!r}\n'
    return "".join(lines[key] for key in sorted(lines))
