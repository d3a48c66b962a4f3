"""`turnwise track RUN --to TRACKER`: show a stored run in an experiment tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def track(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    to: Annotated[
        list[str],
        typer.Option(help="tensorboard, wandb, mlflow, trackio, prometheus or package.module:Class; may be repeated."),
    ],
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a tracker option, for example trackers.project=mine."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Send everything to a new run in the tracker, not only what it lacks.")
    ] = False,
) -> None:
    """Send a stored run to experiment trackers."""
    from turnwise.reporting.trackers.follow import send_run

    for name in to:
        print(f"{name}  {send_run(run, name, overrides=change or [], start_anew=new)}")
