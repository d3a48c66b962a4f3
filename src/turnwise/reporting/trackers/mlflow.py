"""MLflow: a local SQLite store unless the recipe names a server."""

from __future__ import annotations

import os
import re
from typing import Any

from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun, clean_text

MAX_PARAMETER_CHARS = 6000
"""Longest value of a parameter that MLflow takes."""
BATCH = 100
"""Most parameters per request."""


class MlflowTracker:
    """Implements `Tracker`. The id is that of the MLflow run; tables are Markdown artifacts."""

    def __init__(self) -> None:
        self._client: Any = None
        self._id = ""

    def open(self, run: TrackedRun, id: str | None) -> str:
        """See `Tracker.open`."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        trackers, beside = run.trackers, run.path.parent
        self._client = client = MlflowClient(
            tracking_uri=trackers.mlflow.tracking_uri or f"sqlite:///{beside / 'mlflow.db'}"
        )
        if id is not None:
            self._id = id
            client.update_run(id, status="RUNNING")
            return id
        experiment = client.get_experiment_by_name(trackers.project)
        if experiment is not None:
            experiment_id = experiment.experiment_id
        else:
            place = None if trackers.mlflow.tracking_uri else (beside / "mlflow-artifacts").as_uri()
            experiment_id = client.create_experiment(trackers.project, artifact_location=place)
        self._id = str(client.create_run(experiment_id, run_name=run.name).info.run_id)
        options = [
            Param(_name(name), clean_text(str(value))[:MAX_PARAMETER_CHARS]) for name, value in run.options().items()
        ]
        for start in range(0, len(options), BATCH):
            client.log_batch(self._id, params=options[start : start + BATCH])
        return self._id

    def log(self, point: Point) -> None:
        """See `Tracker.log`."""
        from mlflow.entities import Metric

        at = round(point.time * 1000)
        self._client.log_batch(
            self._id, metrics=[Metric(_name(name), value, at, point.step) for name, value in point.values.items()]
        )

    def show(self, table: Table) -> None:
        """See `Tracker.show`."""
        path = f"{_name(table.name)}/step_{table.step:06d}.md"
        self._client.log_text(self._id, clean_text(table.to_markdown()), path)

    def flush(self) -> None:
        """See `Tracker.flush`: every request is answered when it is stored."""

    def close(self) -> None:
        """See `Tracker.close`."""
        self._client.set_terminated(self._id)


def _name(name: str) -> str:
    """The name with what MLflow refuses replaced by "_"."""
    return re.sub(r"[^\w\-./ ]", "_", clean_text(name), flags=re.ASCII)
