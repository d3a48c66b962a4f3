"""`turnwise research RUN "question"`: a trained agent researches, and its report becomes a page with its sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def research(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    question: Annotated[
        str | None,
        typer.Argument(help="Your question; in a generated world facts or subjects of it, such as 'author of X ; Y'."),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(help="Your own passages: a folder of .txt and .md files, or JSONL or Parquet (id, title, text)."),
    ] = None,
    judge: Annotated[
        str, typer.Option(help="With --corpus, the judge of the run's recipe; default: claims must be quotations.")
    ] = "",
    task: Annotated[int, typer.Option(min=0, help="Held-out task whose world is searched.")] = 0,
    output: Annotated[Path | None, typer.Option(help="File of the page; default: RUN/research.html.")] = None,
    step: Annotated[
        str | None, typer.Option(help="RL step of the checkpoint, best (held-out) or latest; default: latest.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: the run's device.")] = None,
) -> None:
    """Let a trained agent research a question and write its report as a page, each claim with the passage it cites."""
    from turnwise_synthesis.runs.research import run_research

    lines = run_research(
        run, question=question, corpus=corpus, judge=judge, index=task, output=output, step=step, device=device
    )
    for line in lines:
        print(line)
