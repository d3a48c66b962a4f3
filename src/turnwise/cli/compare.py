"""`turnwise compare A B`: is the second evaluation better than the first, on the same tasks?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

Target = Annotated[
    str,
    typer.Argument(
        help="A run folder (its latest evaluation), RUN@STEP, RUN@best, RUN@NAME of an evaluation, or a file of "
        "scores: .jsonl or .csv with columns task and score, or an Inspect log (.eval, .json)."
    ),
]


def compare(
    first: Target,
    second: Target,
    score: Annotated[str | None, typer.Option(help="Column, or scorer of a log, that is the score of a file.")] = None,
    aim: Annotated[float, typer.Option(help="Difference that one wants to see: its power is shown.")] = 0.02,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two evaluations task by task: the difference, whether it is chance, and what these tasks can see."""
    from turnwise.reporting.comparison_table import comparison_lines, comparison_table
    from turnwise.reporting.console import print_table
    from turnwise.runs.compare import run_compare

    compared = run_compare(first, second, score=score, aim=aim).to_json()
    if as_json:
        print(json.dumps(compared, indent=1))
        return
    print_table(comparison_table(compared))
    for line in comparison_lines(compared):
        print(line)
