"""Compare samplers of tasks at equal sampled tokens: in a world with a gap between its kinds, in one without.

    PYTHONPATH=benchmarks python benchmarks/curricula.py train [--only gap_order ...] [--seeds 0 1 2 3 4]
    PYTHONPATH=benchmarks python benchmarks/curricula.py table RUN [RUN ...]
    PYTHONPATH=benchmarks python benchmarks/curricula.py train --smoke

`train` leaves finished runs alone. All samplers of a world and seed begin from one warm-up's checkpoint. The budget of
tokens of a world is what the run of it that sampled least has sampled; every run counts with its last held-out
evaluation within the budget, and with the mean of all of them ("on the way"). A sampler is compared with `order` on the
same seeds: the mean difference, with its 95% interval by Student's t.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arms import Arm, train_arm

from turnwise.reporting.summaries import is_control, load_summaries
from turnwise.store.run_folder import RunFolder

SAMPLERS = ("order", "uniform", "difficulty", "value", "progress", "plr")
COMMON = (
    *("curriculum.metric=success", "sft.steps=0", "train.steps=32", "rollout.tasks_per_step=24"),
    *("evaluate.every=4", "evaluate.tasks=300", "evaluate.controls={}"),
)
WORLDS = {
    "gap": ("recipes/search_r1/tiny.toml", "environment.name=curricula_worlds:Gap"),
    "overlap": ("recipes/retool/tiny.toml", "environment.name=curricula_worlds:Overlap"),
}
SMOKE_WARM = ("sft.steps=2", "sft.num_demonstrations=64", "tokenizer.num_texts=300")
SMOKE = (
    *("train.steps=2", "rollout.tasks_per_step=4", "rollout.group_size=4"),
    *("evaluate.tasks=30", "evaluate.every=1"),
)
"""Overrides with which a run shows that it runs, and nothing else."""
STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5% quantile of Student's t by degrees of freedom."""


def list_arms(smoke: bool) -> dict[str, Arm]:
    """By name: one warm-up for each world, and one arm for each world and sampler, which begins from it."""
    arms = []
    for world, (recipe, *overrides) in WORLDS.items():
        warm = (*overrides, "train.steps=0", "evaluate.tasks=0", *(SMOKE_WARM if smoke else ()))
        arms.append(Arm(name=f"{world}_warm", recipes=(recipe,), overrides=warm))
        start = f"model.path={{{world}_warm}}/checkpoints/step_000000"
        for sampler in SAMPLERS:
            options = (*overrides, *COMMON, *(SMOKE if smoke else ()), start, f"curriculum.sampler={sampler}")
            arms.append(Arm(name=f"{world}_{sampler}", recipes=(recipe,), overrides=options))
    return {arm.name: arm for arm in arms}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The held-out evaluations of a run."""

    arm: str
    seed: str
    tokens: Mapping[int, float]
    """Tokens sampled for training until a step."""
    success: Mapping[int, Mapping[str, float]]
    """Success by kind, and on all, of every evaluated step."""

    def mean(self, budget: float) -> float:
        """The mean of success on all kinds over the evaluations within a budget of tokens, that before RL left out."""
        return mean_of(each["all"] for step, each in self.success.items() if step and self.tokens[step] <= budget)

    def at(self, budget: float) -> Mapping[str, float]:
        """The last evaluation within a budget of tokens."""
        return self.success[max(step for step in self.success if self.tokens[step] <= budget)]


def read_curve(run: Path) -> Curve:
    """The curve of a run folder."""
    tokens, total = {0: 0.0}, 0.0
    for row in RunFolder.open(run).read_metrics():
        if row["phase"] == "train":
            total += row["rollout/sampled_tokens"] + row.get("rollout/discarded_tokens", 0.0)
            tokens[row["step"]] = total
    success = {
        summary["step"]: {row["kind"]: row["success"] for row in summary["rows"]}
        for summary in load_summaries(run)
        if not is_control(summary)
    }
    name, _, rest = run.name.rpartition("-seed")
    return Curve(arm=name, seed=rest.split("-")[0], tokens=tokens, success=success)


def compute_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the ends of its 95% interval; the ends are NaN for one difference."""
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return mean, math.nan, math.nan
    half = STUDENT[len(differences) - 1] * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, mean - half, mean + half


def print_world(world: str, curves: Sequence[Curve]) -> None:
    """Print the table of one world."""
    budget = min(max(curve.tokens.values()) for curve in curves)
    kinds = sorted({kind for curve in curves for kind in curve.at(budget)} - {"all"})
    print(f"\n{world}, {budget:,.0f} sampled tokens\n")
    print(f"| sampler | seeds | all | minus order | on the way | minus order | {' | '.join(kinds)} |")
    print(f"|{'---|' * (6 + len(kinds))}")
    plain = {curve.seed: curve for curve in curves if curve.arm == f"{world}_order"}
    starts = [curve.success[0] for curve in curves if 0 in curve.success]
    before = (
        [f"{mean_of(each.get(kind, math.nan) for each in starts):.3f}" for kind in ("all", *kinds)] if starts else []
    )
    if before:
        print(f"| before RL | {len(starts)} runs | {before[0]} |  |  |  | {' | '.join(before[1:])} |")
    for sampler in SAMPLERS:
        runs = {curve.seed: curve for curve in curves if curve.arm == f"{world}_{sampler}"}
        if not runs:
            continue
        pairs = [(run, plain[seed]) for seed, run in runs.items() if seed in plain and sampler != "order"]
        ends = describe_differences([a.at(budget)["all"] - b.at(budget)["all"] for a, b in pairs])
        ways = describe_differences([a.mean(budget) - b.mean(budget) for a, b in pairs])
        values = [
            f"{mean_of(run.at(budget).get(kind, math.nan) for run in runs.values()):.3f}" for kind in ("all", *kinds)
        ]
        way = f"{mean_of(run.mean(budget) for run in runs.values()):.3f}"
        print(f"| {sampler} | {len(runs)} | {values[0]} | {ends} | {way} | {ways} | {' | '.join(values[1:])} |")


def describe_differences(differences: Sequence[float]) -> str:
    """Their mean with its interval; "" for none."""
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*compute_interval(differences)) if differences else ""


def mean_of(values: Iterable[float]) -> float:
    """Their mean."""
    return statistics.fmean(values)


def main() -> None:
    """The command line."""
    names = [f"{world}_{sampler}" for world in WORLDS for sampler in SAMPLERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="command", required=True)
    train = parts.add_parser("train")
    train.add_argument("--output", type=Path, default=Path("runs/curricula"))
    train.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    train.add_argument("--only", nargs="+", choices=names, default=names)
    train.add_argument("--smoke", action="store_true", help="a few steps only: whether the arms run")
    table = parts.add_parser("table")
    table.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "table":
        runs = arguments.runs
    else:
        arms = list_arms(arguments.smoke)
        # Apart, or a later training would take the runs of a few steps for its own.
        output = arguments.output / "smoke" if arguments.smoke else arguments.output
        runs = []
        # Seed by seed, so that a command that is stopped leaves pairs.
        for seed in arguments.seeds:
            for name in arguments.only:
                for part in (f"{name.partition('_')[0]}_warm", name):
                    run = train_arm(arms[part], seed, output, list(arms.values()))
                runs.append(run)
    curves = [read_curve(run) for run in runs if "_warm-seed" not in run.name]
    for world in WORLDS:
        if own := [curve for curve in curves if curve.arm.startswith(f"{world}_")]:
            print_world(world, own)


if __name__ == "__main__":
    main()
