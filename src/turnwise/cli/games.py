"""`turnwise exploitability RUN`: what the best opponent earns against the policies of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def exploitability(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of environment.name='games'.")],
    device: Annotated[
        str | None, typer.Option(help="Read the policies on auto, cpu or cuda; default: the device of the run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure exactly how well a run plays its game: the last policy, the average of checkpoints, and all of them
    against each other."""
    from turnwise.reporting.console import print_table
    from turnwise.reporting.game_tables import policies_table, population_table
    from turnwise.runs.exploitability import measure_exploitability

    reports = [report.to_json() for report in measure_exploitability(run, device=device)]
    if as_json:
        print(json.dumps(reports, indent=1))
        return
    for report in reports:
        print_table(policies_table(report))
        print_table(population_table(report))
