"""Tables and pictures of packages/turnwise-rewards/docs/reward_models.md. Only drawing imports matplotlib."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.evaluation.intervals import compute_wilson_interval

COLORS = {"soft": "#1f7a5a", "hard": "#b4581c", "returns": "#4561b8", "outcome": "#9a3ab0"}
WAYS = {
    "one sample": ("#14171a", ":"),
    "majority": ("#14171a", "-"),
    "random scores": ("#b03a2e", ":"),
    "oracle (pass@n)": ("#9a9a9a", "--"),
    "best by soft, min": ("#1f7a5a", "-"),
    "best by soft, last": ("#1f7a5a", ":"),
    "best by soft, prod": ("#1f7a5a", "--"),
    "vote by soft, min": ("#8fd0b4", "-"),
    "best by outcome": ("#9a3ab0", "-"),
    "vote by outcome": ("#d3a8dd", "-"),
}


def draw_all(out: Path, folder: Path) -> None:
    """Print every table of which there are results, and draw the pictures."""
    if (out / "labels.json").exists():
        print(*list_worlds(read(out / "labels.json")), sep="\n", end="\n\n")
    seeds = [read(path) for path in sorted(out.glob("chain_seed*.json"))]
    whole = [seed for seed in seeds if "models" in seed]
    if whole:
        print(*list_labels(whole), sep="\n", end="\n\n")
        print(*list_models(whole), sep="\n", end="\n\n")
        draw_calibration(whole, folder / "reward_models_calibration.png")
    if seeds:
        print(*list_best_of(seeds), sep="\n", end="\n\n")
        draw_best_of(seeds, folder / "reward_models_best_of.png")
    if (out / "runs.json").exists():
        runs = read(out / "runs.json")
        print(*list_runs(runs), sep="\n")
        draw_runs(runs, folder / "reward_models_rl.png")


def read(path: Path) -> Any:
    """Read JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def list_worlds(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Bias and correlation of every kind of labels in the laboratory's worlds."""
    yield "| world | labels | mean label, exact | bias | r | tokens per label |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        bias, low, high = row["bias"]
        r = "-" if row["correlation"] is None else "{:.2f} [{:.2f}, {:.2f}]".format(*row["correlation"])
        yield (
            f"| {row['world']} | {row['method']} | {row['mean_label']:.2f}, {row['mean_exact']:.2f} | "
            f"{bias:+.3f} [{low:+.3f}, {high:+.3f}] | {r} | {row['tokens_per_label']:.0f} |"
        )


def list_labels(seeds: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Labels in the chain world, a cell per seed."""
    yield "| labels | mean label, exact | bias by seed | r by seed | labels | tokens per label |"
    yield "|---|---|---|---|---|---|"
    for name in seeds[0]["labels"]:
        rows = [seed["labels"][name] for seed in seeds]
        counts = f"{rows[0]['labels']:,} | {np.mean([row['tokens_per_label'] for row in rows]):.1f}"
        if "bias" not in rows[0]:
            yield f"| {name} | ends only | - | - | {counts} |"
            continue
        means = (
            f"{np.mean([row['mean_label'] for row in rows]):.2f}, {np.mean([row['mean_exact'] for row in rows]):.2f}"
        )
        bias = ", ".join(f"{row['bias']:+.3f} ± {row['bias_half_width']:.3f}" for row in rows)
        r = ", ".join(f"{row['correlation']:.2f}" for row in rows)
        yield f"| {name} | {means} | {bias} | {r} | {counts} |"


def list_models(seeds: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Scores of trained models beside the exact values, a cell per seed."""
    yield "| labels | turns: r | AUC | Brier | calibration error | ends: AUC | Brier |"
    yield "|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(name for seed in seeds for name in seed["models"]):
        rows = [seed["models"][name] for seed in seeds if name in seed["models"]]
        cells = [
            join(rows, "turns", "correlation"),
            join(rows, "turns", "auc"),
            join(rows, "turns", "brier", 3),
            join(rows, "turns", "calibration_error"),
            join(rows, "ends", "auc"),
            join(rows, "ends", "brier", 3),
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def join(rows: Sequence[dict[str, Any]], part: str, name: str, digits: int = 2) -> str:
    """One number per seed."""
    values = [row[part][name] for row in rows]
    return ", ".join("-" if value is None else f"{value:.{digits}f}" for value in values)


def sum_best_of(seeds: Sequence[dict[str, Any]]) -> dict[str, dict[int, tuple[int, int]]]:
    """Right answers and tasks over seeds, by way and number of attempts."""
    sums: dict[str, dict[int, tuple[int, int]]] = {}
    for seed in seeds:
        for row in seed["best_of"]:
            right, tasks = sums.setdefault(row["name"], {}).get(row["attempts"], (0, 0))
            sums[row["name"]][row["attempts"]] = (right + row["right"], tasks + row["tasks"])
    return sums


def list_best_of(seeds: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Right answers by way and number of attempts, over all seeds."""
    sums = sum_best_of(seeds)
    counts = list(next(iter(sums.values())))
    yield "| chosen by | " + " | ".join(map(str, counts)) + " | 95% interval |"
    yield "|---|" + "---|" * (len(counts) + 1)
    for name, row in sums.items():
        low, high = compute_wilson_interval(*row[counts[-1]])
        shares = " | ".join(f"{row[n][0] / row[n][1]:.2f}" for n in counts)
        yield f"| {name} | {shares} | [{low:.3f}, {high:.3f}] of {row[counts[-1]][1]} |"


def list_runs(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """First and last three steps of every run."""
    yield "| run | seed | right, first and last 3 steps | right processes | model's score | turns |"
    yield "|---|---|---|---|---|---|"
    for run in runs:
        cells = []
        for name in ("success", "process", "score", "turns"):
            values = [step[name] for step in run["steps"]]
            known = values[0] is not None
            cells.append(f"{np.mean(values[:3]):.2f} to {np.mean(values[-3:]):.2f}" if known else "-")
        yield f"| {run['name']} | {run['seed']} | {' | '.join(cells)} |"


def draw_calibration(seeds: Sequence[dict[str, Any]], path: Path) -> None:
    """Mean exact value of turns beside the model's score, for every kind of labels."""
    plt = load_pyplot()
    figure, axis = plt.subplots(figsize=(5, 4.2), layout="constrained")
    axis.plot([0, 1], [0, 1], color="#9a9a9a", linewidth=1, linestyle="--")
    for name, color in COLORS.items():
        for number, seed in enumerate(seed for seed in seeds if name in seed["models"]):
            bins = seed["models"][name]["turns"]["bins"]
            x, y = [each["score"] for each in bins], [each["right"] for each in bins]
            sizes = [4 + 40 * each["count"] / seed["models"][name]["turns"]["count"] for each in bins]
            axis.plot(x, y, color=color, linewidth=1, alpha=0.6, label=None if number else f"{name} labels")
            axis.scatter(x, y, s=sizes, color=color)
    axis.set(xlabel="model's score of a turn", ylabel="exact success probability, mean", xlim=(0, 1), ylim=(0, 1))
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=90)


def draw_best_of(seeds: Sequence[dict[str, Any]], path: Path) -> None:
    """Right answers beside the number of attempts, for every way to choose."""
    plt = load_pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    sums = sum_best_of(seeds)
    for name, (color, style) in WAYS.items():
        row = sums[name]
        axis.plot(
            list(row), [right / tasks for right, tasks in row.values()], style, color=color, label=name, marker="."
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(row), list(map(str, row)))
    axis.set(xlabel="attempts per task", ylabel="right answers", ylim=(0, 1.02))
    axis.legend(frameon=False, fontsize=7, loc="lower left", ncols=2)
    figure.savefig(path, dpi=90)


def draw_runs(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """True success and the model's score over steps, a panel per kind of run, a line per seed."""
    plt = load_pyplot()
    names = list(dict.fromkeys(run["name"] for run in runs))
    figure, axes = plt.subplots(
        1, len(names), figsize=(2.9 * len(names), 2.8), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[0], names, strict=True):
        for number, run in enumerate(run for run in runs if run["name"] == name):
            for key, color in (("success", "#1f7a5a"), ("score", "#b4581c")):
                label = None if number else {"success": "truly right", "score": "model's score"}[key]
                axis.plot([step[key] for step in run["steps"]], color=color, linewidth=1.2, label=label)
        axis.set_title(name, fontsize=9)
        axis.set(xlabel="step", ylim=(0, 1.02))
    axes[0][0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=80)


def load_pyplot() -> Any:
    """matplotlib without a display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
