"""`turnwise badcases RUN`: what the failed attempts of an evaluation did, and where they left what would have
succeeded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from turnwise.core.errors import ConfigError


def badcases(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder with a held-out evaluation.")],
    evaluation: Annotated[
        str | None,
        typer.Argument(
            metavar="EVALUATION", help="Name of an evaluation; default: the first and the last that the run made."
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Every evaluation of this RL step, instead of a name.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="How divergences are found: oracle, continuations, critic or judge; auto: the oracle, if there is one."
        ),
    ] = "auto",
    most: Annotated[
        int, typer.Option(min=0, help="Failed attempts of an evaluation whose divergence is looked for; all are named.")
    ] = 100,
    continuations: Annotated[
        int, typer.Option(min=1, help="With --by continuations: continuations from each turn.")
    ] = 8,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: the run's device.")] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Write badcases.html, and report.html with the section.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Name what each failed held-out attempt did, find where it left what would have succeeded, and count both."""
    from turnwise.reporting.badcases import badcases_table, describe_methods, write_badcases_page
    from turnwise.reporting.console import print_table
    from turnwise.reporting.report import write_report
    from turnwise.runs.badcases import By, Search, find_badcases
    from turnwise.store.run_folder import RunFolder

    if by not in get_args(By):
        raise ConfigError(f"--by is {by!r}; it must be one of {', '.join(get_args(By))}")
    if evaluation is not None and step is not None:
        raise ConfigError(f"EVALUATION {evaluation!r} and --step {step} exclude each other; give one of them")
    search = Search(by=cast(By, by), most=most, continuations=continuations, device=device)
    tables = find_badcases(run, evaluation=evaluation, step=step, search=search)
    if as_json:
        print(json.dumps(tables, indent=1))
    else:
        print_table(badcases_table(tables))
        for line in describe_methods(tables):
            print(line)
        for table in tables:
            print(f"table       {run / 'evaluations' / table['evaluation']}.badcases.json")
    if page:
        folder = RunFolder.open(run)
        written = write_badcases_page(folder), write_report(folder)
        if not as_json:
            print(f"page        {written[0]}\nreport      {written[1]}")
