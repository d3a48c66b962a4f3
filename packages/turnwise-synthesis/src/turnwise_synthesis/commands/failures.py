"""`turnwise failures`: write new tasks near those that a run's policy fails."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def failures(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    output: Annotated[Path, typer.Option("--output", help="The file of tasks that is written.")],
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 1000,
    low: Annotated[float, typer.Option(min=0, max=1, help="Lowest success of a kind that is a target.")] = 0.1,
    high: Annotated[float, typer.Option(min=0, max=1, help="Highest success of a kind that is a target.")] = 0.9,
    steps: Annotated[int, typer.Option(min=0, help="Last steps to measure; 0: the last evaluation.")] = 10,
    metric: Annotated[str, typer.Option(help='Part of the reward that says what is solved, or "reward".')] = "success",
    min_attempts: Annotated[int, typer.Option(min=1, help="Fewest attempts at a kind that is a target.")] = 20,
    by: Annotated[str, typer.Option(help="Fields of a task's payload that tell kinds apart, with commas.")] = "kind",
    entities: Annotated[
        str, typer.Option(help="Fields whose names new tasks share with no held-out task and no task of the run.")
    ] = "question,answers",
) -> None:
    """Write new tasks of the kinds that a run's policy solves sometimes. Train on them with the environment
    near_failures."""
    from turnwise_synthesis.runs.failures import Wanted, write_failures

    wanted = Wanted(
        count=count,
        low=low,
        high=high,
        steps=steps,
        metric=metric,
        min_attempts=min_attempts,
        by=tuple(by.split(",")),
        entities=tuple(entities.split(",")),
    )
    content = write_failures(run, output, wanted)
    for rate in content.plan["rates"]:
        share = content.plan["weights"].get(rate["of"], 0.0)
        print(
            f"{rate['of'] or 'all'}: success {rate['rate']:.2f} [{rate['low']:.2f}, {rate['high']:.2f}] of "
            f"{rate['attempts']} attempts, {share:.0%} of the new tasks"
        )
    for outcome, number in content.made.outcomes.items():
        print(f"{outcome}: {number}")
    for kind, number in content.made.missing.items():
        print(f"not found of kind {kind}: {number}")
    print(f"{output}: {len(content.made.tasks)} tasks")
