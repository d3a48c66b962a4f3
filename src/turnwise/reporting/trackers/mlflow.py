"""MLflow: a local SQLite store unless the recipe names a server."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from pathlib import Path
from typing import Any

from turnwise.reporting.trackers.lock import hold
from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun, clean_text

MAX_PARAMETER_CHARS = 6000
"""Maximum length of a parameter value in MLflow."""
MAX_NAME_CHARS = 250
"""Maximum length of a name in MLflow."""
BATCH = 100
"""Maximum number of parameters per request."""
DATABASE = "mlflow.db"
START_S = 300.0
"""Seconds to wait for another run that creates the database or the experiment, which can take over 30 on a busy
machine."""


class MlflowTracker:
    """Implements `Tracker`. The id is that of the MLflow run; tables are Markdown artifacts."""

    def __init__(self) -> None:
        self._client: Any = None
        self._id = ""
        self._names = Names()

    def open(self, run: TrackedRun, id: str | None) -> str:
        """See `Tracker.open`."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        server, beside = run.trackers.mlflow.tracking_uri, run.path.parent
        # Runs that start together would create the same database, or the same experiment, at the same time.
        with contextlib.nullcontext() if server else hold(beside / f"{DATABASE}.lock", START_S):
            return self._start(run, id, server, beside)

    def _start(self, run: TrackedRun, id: str | None, server: str, beside: Path) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        # In an address "?" starts the options, and "%" an escaped character.
        file = str(beside / DATABASE).replace("%", "%25").replace("?", "%3F")
        self._client = client = MlflowClient(tracking_uri=server or f"sqlite:///{file}")
        if id is not None:
            self._id = id
            client.update_run(id, status="RUNNING")
            return id
        place = None if server else (beside / "mlflow-artifacts").as_uri()
        experiment_id = _find_experiment(client, run.trackers.project, place)
        self._id = str(client.create_run(experiment_id, run_name=run.name).info.run_id)
        options = [
            Param(self._names.find(name), clean_text(str(value))[:MAX_PARAMETER_CHARS])
            for name, value in run.options().items()
        ]
        for start in range(0, len(options), BATCH):
            client.log_batch(self._id, params=options[start : start + BATCH])
        return self._id

    def log(self, point: Point) -> None:
        """See `Tracker.log`."""
        from mlflow.entities import Metric

        at = round(point.time * 1000)
        find = self._names.find
        self._client.log_batch(
            self._id, metrics=[Metric(find(name), value, at, point.step) for name, value in point.values.items()]
        )

    def show(self, table: Table) -> None:
        """See `Tracker.show`."""
        path = f"{self._names.find(table.name)}/step_{table.step:06d}.md"
        self._client.log_text(self._id, clean_text(table.to_markdown()), path)

    def flush(self) -> None:
        """See `Tracker.flush`: every request is answered only after it is stored."""

    def close(self) -> None:
        """See `Tracker.close`."""
        self._client.set_terminated(self._id)


def _find_experiment(client: Any, name: str, place: str | None) -> str:
    """The id of the experiment with that name, which is created if missing, with its files at `place`."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, artifact_location=place))
        except MlflowException:  # another run has made it meanwhile
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    return str(experiment.experiment_id)


class Names:
    """Names as MLflow accepts them; accepted names stay as they are."""

    def __init__(self) -> None:
        self._meant: dict[str, str] = {}
        """Original name, by the name in MLflow."""

    def find(self, name: str) -> str:
        """The name with "_" for characters that MLflow refuses; if it is too long, or equals another converted name, it
        ends in eight digits of its own."""
        parts = re.sub(r"[^\w\-./ ]", "_", clean_text(name)).split("/")
        found = "/".join("_" if part in ("", ".", "..") else part for part in parts)
        if len(found) > MAX_NAME_CHARS or self._meant.setdefault(found, name) != name:
            digits = f"_{zlib.crc32(clean_text(name).encode()):08x}"
            found = found[: MAX_NAME_CHARS - len(digits)] + digits
        return found
