"""Weights & Biases, offline unless the recipe says otherwise."""

from __future__ import annotations

import json
import os
from typing import Any

from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun, clean_text


class WandbTracker:
    """Implements `Tracker`. A resumed run gets a second offline folder with the same id; `wandb sync` joins them."""

    def __init__(self) -> None:
        self._run: Any = None

    def open(self, run: TrackedRun, id: str | None) -> str:
        """See `Tracker.open`. The id is that of the W&B run: the run folder knows it, and no variable of a shell, which
        would give all runs that start there one id."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        for name in ("WANDB_RUN_ID", "WANDB_RESUME"):
            os.environ.pop(name, None)
        import wandb

        trackers = run.trackers
        config = json.loads(clean_text(json.dumps(run.table())))
        self._run = wandb.init(
            project=trackers.project,
            entity=trackers.wandb.entity or None,
            mode=trackers.wandb.mode,
            dir=str(run.path),
            name=run.name,
            id=id,
            resume="allow" if id is not None else None,
            config=config,
            settings=wandb.Settings(console="off", disable_code=True, disable_git=True, x_disable_stats=True),
        )
        self._run.define_metric("*", step_metric="step")
        return str(self._run.id)

    def log(self, point: Point) -> None:
        """See `Tracker.log`."""
        self._run.log({**point.values, "step": point.step, "_timestamp": point.time}, step=point.number)

    def show(self, table: Table) -> None:
        """See `Tracker.show`."""
        import wandb

        rows = [[clean_text(cell) for cell in row] for row in table.rows]
        shown = {table.name: wandb.Table(columns=list(table.columns), data=rows), "step": table.step}
        self._run.log(shown, step=table.number)

    def flush(self) -> None:
        """See `Tracker.flush`: W&B stores its data in its own process."""

    def close(self) -> None:
        """See `Tracker.close`."""
        self._run.finish()
