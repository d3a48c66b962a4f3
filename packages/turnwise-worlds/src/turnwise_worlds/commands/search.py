"""`turnwise search RUN`: search with a trained policy, compare it with plain samples, and learn from what it finds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def search(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    tasks: Annotated[int, typer.Option(min=1, help="Number of held-out tasks in the comparison.")] = 80,
    train_tasks: Annotated[int, typer.Option(min=1, help="Training tasks per set of trees.")] = 150,
    calls: Annotated[int, typer.Option(min=1, help="Policy calls per task.")] = 16,
    targets: Annotated[
        Literal["progress", "reached"], typer.Option(help="Target that the value model learns from the trees.")
    ] = "progress",
    sft_steps: Annotated[int, typer.Option(min=0, help="Number of self-training steps; 0 skips self-training.")] = 150,
    step: Annotated[
        str | None, typer.Option(help="RL step of the checkpoint, best (held-out) or latest; default: latest.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: the run's device.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search over forked environments with a value model, beside best-of-n at equal calls, and self-train once."""
    from turnwise_worlds.runs.search import SearchPlan, run_search

    plan = SearchPlan(tasks=tasks, train_tasks=train_tasks, calls=calls, targets=targets, sft_steps=sft_steps)
    show = (lambda text: typer.echo(text, err=True)) if as_json else typer.echo
    summary = run_search(run, plan, show=show, step=step, device=device)
    if as_json:
        print(json.dumps(summary, indent=1))
    else:
        for line in describe(summary):
            print(line)


def describe(summary: Mapping[str, Any]) -> Iterator[str]:
    """The summary as lines: success against calls, then the policy alone before and after."""
    points = summary["points"]
    width = max(map(len, points))
    budgets = [point["calls"] for point in next(iter(points.values()))]
    yield f"{'success at policy calls per task':<{width}}" + "".join(f"{calls:>8}" for calls in budgets)
    for name, row in points.items():
        last = row[-1]
        cells = "".join(f"{point['success']:>8.3f}" for point in row)
        yield f"{name:<{width}}{cells}  [{last['low']:.3f}, {last['high']:.3f}]"
    if summary["auc"] is not None:
        yield f"states that can be won told from others by the learned value, AUC: {summary['auc']:.3f}"
    for name in ("before", "after"):
        if name in summary:
            row = summary[name]["rows"][-1]
            interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
            yield f"greedy, {name} self-training: {row['success']:.3f} {interval} of {row['n']}"
