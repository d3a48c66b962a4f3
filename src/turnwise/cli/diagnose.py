"""`turnwise diagnose RUN`: say why a run does not learn, how that is known, and what to try first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished, interrupted or running.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a run does not learn: what is wrong, how that is known, what to try first."""
    from turnwise.reporting.diagnosis_lines import describe_diagnosis
    from turnwise.runs.diagnose import diagnose_run

    report = diagnose_run(run).to_json()
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        for line in describe_diagnosis(report):
            print(line)
