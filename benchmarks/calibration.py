"""Compare what runs state about their own answers: one row of Markdown per run, and a picture with `--plot`.

    python benchmarks/calibration.py RUN [RUN ...] [--evaluation heldout_000060] [--plot PICTURE.png]

The runs are those of `shaping/calibration` and its overlays; their names say the arm. Without `--evaluation` the run's
last one is read. The picture shows risk against coverage, one panel per seed, and what a source says against how often
it is right."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.config.load import load_resolved
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise_rewards.runs.calibration import StatedConfidences, measure_run

HEAD = (
    "run",
    "seed",
    "right",
    "stated",
    "Brier",
    "of the best constant's",
    "reliability",
    "resolution",
    "ECE",
    "values",
    "mean risk",
    "risk at 1/3",
)


def main() -> None:
    """Print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--evaluation", default="")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    results = []
    for run in given.runs:
        config = load_resolved(run / "config.json")
        found = choose(measure_run(run, evaluation=given.evaluation))
        results.append({"name": config.run.name, "seed": config.run.seed, "found": found})
        print(f"| {config.run.name} | {config.run.seed} | {' | '.join(list_cells(found))} |")
    if given.plot:
        draw(results, given.plot)


def choose(measured: Sequence[StatedConfidences]) -> StatedConfidences:
    """The last evaluation that is no control."""
    return max((each for each in measured if each.evaluation.count("_") == 1), key=lambda each: each.evaluation)


def list_cells(found: StatedConfidences) -> list[str]:
    """The numbers of a row."""
    total = sum(found.outcomes.values())
    right = round(found.accuracy * total)
    low, high = compute_wilson_interval(right, total)
    cells = [f"{found.accuracy:.1%} [{low:.1%}, {high:.1%}]", f"{found.outcomes.get('stated', 0)} of {total}"]
    parts = found.decomposition
    if parts is None or parts.ratio is None:
        return [*cells, *("-" for _ in HEAD[4:])]
    third = next(point for point in found.coverage if point.coverage >= 0.3)
    numbers = (parts.brier, parts.ratio, parts.reliability, parts.resolution, parts.calibration_error)
    risks = [f"{found.risk_area:.3f}", f"{third.risk:.3f} at {third.coverage:.2f}"]
    return [*cells, *(f"{number:.3f}" for number in numbers), str(parts.values), *risks]


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw risk against coverage into a PNG file, one panel per seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(result["name"] for result in results))
    seeds = sorted({result["seed"] for result in results})
    colors = dict(zip(names, ("#1f7a5a", "#4561b8", "#b4581c", "#8a4f9e", "#14171a", "#9a9a9a"), strict=False))
    figure, axes = plt.subplots(1, len(seeds), figsize=(3.6 * len(seeds), 3.2), sharey=True, layout="constrained")
    for axis, seed in zip([axes] if len(seeds) == 1 else axes, seeds, strict=True):
        for result in (result for result in results if result["seed"] == seed):
            points = result["found"].coverage
            line = ([point.coverage for point in points], [point.risk for point in points])
            axis.plot(*line, "o-", color=colors[result["name"]], linewidth=1.4, markersize=4, label=result["name"])
        axis.set_title(f"seed {seed}", fontsize=10)
        axis.set_xlabel("coverage: share of questions answered")
        axis.set_xlim(0, 1.03)
        axis.set_ylim(0, 0.75)
        axis.grid(color="#e3e4e0", linewidth=0.6)
        if seed == seeds[0]:
            axis.set_ylabel("risk: share of answers that are wrong")
            axis.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main()
