"""`turnwise rewards calibration RUN`: what the confidences are worth that a run's replies state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnwise_rewards.runs.calibration import StatedConfidences


def calibration(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    evaluation: Annotated[str, typer.Option(help="Name of one evaluation; default: all of them.")] = "",
    tag: Annotated[
        str | None, typer.Option(help="Name of the tag around the confidence; default: the recipe's.")
    ] = None,
    scale: Annotated[float | None, typer.Option(help="Number that means certainty; default: the recipe's.")] = None,
    success: Annotated[
        str | None, typer.Option(help="Part of the reward that is 1 for a right answer; default: the recipe's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show Brier score, its decomposition and risk against coverage of a run's evaluations."""
    from turnwise_rewards.runs.calibration import measure_run

    given = {"tag": tag, "scale": scale, "success": success}
    changes = {name: value for name, value in given.items() if value is not None}
    measured = measure_run(run, evaluation=evaluation, changes=changes)
    if as_json:
        print(json.dumps([asdict(each) for each in measured], indent=1))
        return
    for each in measured:
        for line in describe(each):
            print(line)


def describe(stated: StatedConfidences) -> Iterator[str]:
    """One evaluation as lines."""
    counts = ", ".join(f"{outcome.replace('_', ' ')} {count}" for outcome, count in sorted(stated.outcomes.items()))
    yield f"{stated.evaluation}: {counts}; accuracy {stated.accuracy:.3f}"
    found = stated.decomposition
    if found is None or stated.risk_area is None:
        yield "no reply states a confidence"
        return
    ratio = "no mistake to tell" if found.ratio is None else f"{found.ratio:.3f} of the best constant's"
    yield (
        f"Brier {found.brier:.4f} ({ratio}) = reliability {found.reliability:.4f} - resolution {found.resolution:.4f} "
        f"+ uncertainty {found.uncertainty:.4f}; calibration error {found.calibration_error:.4f}; {found.values} values"
    )
    yield f"risk at full coverage {1 - found.accuracy:.3f}, mean risk over coverages {stated.risk_area:.3f}"
    for point in stated.coverage:
        yield f"answering from {point.threshold:g}: coverage {point.coverage:.3f}, risk {point.risk:.3f}"
