"""`turnwise audit RUN`: prove from the stored tokens of a run that what it trained is what it sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished or running.")],
    replay_tools: Annotated[
        bool, typer.Option("--replay-tools", help="Also rerun every recorded tool call and compare the answers.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Device for scoring: auto, cpu or cuda; default: the run's device.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove from the stored tokens that what a run trained is what it sampled; exit with 1 on any breach."""
    from turnwise.reporting.audit_table import audit_lines, audit_table
    from turnwise.reporting.console import print_table
    from turnwise.runs.audit import audit_run

    report = audit_run(run, replay_tools=replay_tools, device=device).to_json()
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        print_table(audit_table(report))
        for line in audit_lines(report):
            print(line)
    if not report["ok"]:
        raise typer.Exit(code=1)
