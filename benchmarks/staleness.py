"""Measure held-out success by staleness for four losses; prints the table of docs/staleness.md and draws its plot.

    python benchmarks/staleness.py [--losses ...] [--staleness 0 1 2 4 8] [--seeds 0 1 2] [--steps 30]
                                   [--output runs/staleness] [--plot docs/staleness.png] [--quick] [a.b=value ...]

Every arm is `teams/relay` with batches of 8 groups of 8 episodes. Arms differ only in the loss and in
`schedule.max_staleness`, start from one warm-up per seed and face the same tasks in the same order. A step is two
optimizer updates at twice the recipe's rate, so that ratios move and staleness can hurt. PPO, GSPO and CISPO take their
ratios to the sampler's log-probabilities; decoupled PPO takes them to those recomputed before the step, with weights
proximal / behavior. Each run trains in a separate process, one at a time.

A finished run is not repeated. Delete its result in `--output` to measure it again; other overrides (`a.b=value`) need
another `--output`."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schedule import Job, measure, prepare_start, run_apart, to_interval

RECIPE = Path("teams/relay")
SAMPLERS_RATIO = ("loss.recompute_old=false", "loss.correction.mode=none")
LOSSES: Mapping[str, tuple[str, ...]] = {
    "PPO clip": ("loss.method=ppo", *SAMPLERS_RATIO),
    "decoupled PPO": ("loss.method=decoupled_ppo", "loss.recompute_old=true"),
    "GSPO": ("loss.method=gspo", *SAMPLERS_RATIO),
    "CISPO": ("loss.method=cispo", *SAMPLERS_RATIO),
}
"""What each loss adds to the recipe; its options are the published ones."""
SAME = (
    "rollout.tasks_per_step=8",
    "rollout.group_size=8",
    "rollout.max_open=1024",  # more than any arm has under way, so that nothing waits for a slot
    "loss.updates_per_step=2",
    "train.lr=4e-3",
    "engine.num_threads=1",
    "train.num_threads=1",
    "train.checkpoint_every=0",
    "train.parity_every=0",
    "evaluate.controls={}",
)
"""What all arms add to the recipe."""
STALENESS = (0, 1, 2, 4, 8)


def main() -> None:
    """Train what is missing, then print and draw everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--staleness", nargs="+", type=int, default=STALENESS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path("runs") / "staleness")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--quick", action="store_true", help="a minute or two; the numbers say little")
    # Overrides may be anywhere, even after a list of losses.
    overrides = [a for a in sys.argv[1:] if "=" in a and not a.startswith("-")]
    arguments = parser.parse_args([a for a in sys.argv[1:] if a not in overrides])
    warmup: tuple[str, ...] = ()
    if arguments.quick:
        warmup = ("sft.steps=30", "sft.num_demonstrations=300", "evaluate.tasks=40")
        arguments.steps, arguments.seeds = 6, arguments.seeds[:1]
        arguments.output = arguments.output.with_name(arguments.output.name + "-quick")
    shared = (*warmup, *SAME, f"train.steps={arguments.steps}", f"evaluate.every={arguments.steps // 3}", *overrides)
    results = []
    for seed in arguments.seeds:
        start = run_apart(prepare_start, arguments.output, RECIPE, seed, warmup)
        for staleness in arguments.staleness:
            for loss in arguments.losses:
                given = (*shared, *LOSSES[loss], f"schedule.max_staleness={staleness}", f"run.seed={seed}")
                arm = f"{loss} {staleness}"
                job = Job(part="staleness", latency="none", arm=arm, number=seed, recipe=RECIPE, overrides=given)
                row = run_apart(measure, arguments.output, start, job) | {"loss": loss, "staleness": staleness}
                results.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    print(tabulate(results))
    if arguments.plot:
        draw(results, arguments.plot)


def group_rows(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    """The seeds of each (loss, staleness), in the order of measuring."""
    table: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in results:
        table.setdefault((row["loss"], row["staleness"]), []).append(row)
    return {key: table[key] for key in sorted(table, key=lambda key: (list(LOSSES).index(key[0]), key[1]))}


def read_success(row: Mapping[str, Any], step: str) -> float:
    """Held-out success after `step`."""
    return float(row["heldout"][step]["success"])


def tabulate(results: Sequence[Mapping[str, Any]]) -> str:
    """One line per loss and staleness: means during training, each seed's final value, and the effect of staleness."""
    table = group_rows(results)
    seeds = sorted({row["number"] for row in results})
    *_, first, second, last = sorted(results[0]["heldout"], key=int)
    lines = [
        f"| loss | staleness | step {first} | step {second} | step {last} | {' | '.join(f'seed {s}' for s in seeds)} "
        f"| step {last} minus staleness 0 | age: mean, max | clipped | processor s |",
        f"|---|---|---|---|---|{'---|' * len(seeds)}---|---|---|---|",
    ]
    for (loss, staleness), rows in table.items():
        base = table.get((loss, 0), rows)
        differences = [read_success(row, last) - read_success(own, last) for row, own in zip(rows, base, strict=True)]
        ends = [row["heldout"][last] for row in rows]
        cells = [
            loss,
            str(staleness),
            *(f"{statistics.mean(read_success(row, step) for row in rows):.3f}" for step in (first, second, last)),
            *(f"{end['success']:.3f} [{end['low']:.3f}, {end['high']:.3f}]" for end in ends),
            to_interval(differences) if staleness else "",
            f"{statistics.mean(row['mean_age'] for row in rows):.2f}, {max(row['max_age'] for row in rows)}",
            f"{statistics.mean(row['clip_fraction'] for row in rows):.1%}",
            f"{statistics.mean(row['processor_seconds'] for row in rows):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw held-out success over staleness into a PNG file, one panel per evaluation: dots are seeds, lines their
    means."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colors = dict(zip(LOSSES, ("#14171a", "#1f7a5a", "#4561b8", "#b4581c"), strict=True))
    table = group_rows(results)
    start, *steps = sorted(results[0]["heldout"], key=int)
    places = {staleness: place for place, staleness in enumerate(sorted({staleness for _, staleness in table}))}
    figure, axes = plt.subplots(1, len(steps), figsize=(4.2 * len(steps), 3.6), sharey=True, layout="constrained")
    for axis, step in zip(axes, steps, strict=True):
        for place, (loss, color) in enumerate(colors.items()):
            shift = 0.06 * (place - 1.5)
            rows = {staleness: seeds for (own, staleness), seeds in table.items() if own == loss}
            means = [statistics.mean(read_success(row, step) for row in seeds) for seeds in rows.values()]
            axis.plot([places[s] + shift for s in rows], means, color=color, linewidth=1.6, label=loss)
            for staleness, seeds in rows.items():
                dots = [read_success(row, step) for row in seeds]
                axis.plot([places[staleness] + shift] * len(dots), dots, "o", color=color, markersize=4)
        begun = statistics.mean(read_success(row, start) for row in results)
        axis.axhline(begun, color="#9a9a9a", linewidth=0.8, linestyle=":", label="before RL")
        axis.set_xticks(list(places.values()), [str(staleness) for staleness in places])
        axis.set_ylim(0, 1)
        axis.grid(color="#e3e4e0", linewidth=0.6)
        axis.set_title(f"after step {step}", fontsize=10)
        axis.set_xlabel("schedule.max_staleness, versions")
    axes[0].set_ylabel("held-out success")
    axes[0].legend(fontsize=8, loc="lower left")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
