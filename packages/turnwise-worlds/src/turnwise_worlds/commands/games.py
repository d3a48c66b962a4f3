"""`turnwise exploitability RUN`: measure what the best opponent earns against the policies of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def exploitability(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder with environment.name='games'.")],
    device: Annotated[
        str | None, typer.Option(help="Device for the policies: auto, cpu or cuda; default: the run's device.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure exactly how well a run plays its game: the last policy, the average of checkpoints, and all of them
    against each other. What is measured is kept in the run folder and becomes part of its report."""
    from turnwise.reporting.console import print_table
    from turnwise.reporting.report import write_report
    from turnwise.store.run_folder import RunFolder, write_bytes_atomic
    from turnwise_worlds.reporting.game_tables import MEASURED, build_table, list_tables
    from turnwise_worlds.runs.exploitability import measure_exploitability

    reports = [report.to_json() for report in measure_exploitability(run, device=device)]
    text = json.dumps(reports, indent=1)
    folder = RunFolder.open(run)
    write_bytes_atomic(folder.path / MEASURED, text.encode())
    write_report(folder)
    if as_json:
        print(text)
        return
    for report in reports:
        for cells in list_tables(report):
            print_table(build_table(cells))
