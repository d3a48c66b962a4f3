"""Compare synchronous, over-drawn and asynchronous training of the search recipe, with slow tools and without; prints
the tables of docs/schedule.md, or JSON.

    python benchmarks/schedule.py throughput [--latencies slow none] [--rounds 3] [--steps 24]
    python benchmarks/schedule.py learning [--latencies brief] [--seeds 0 1 2] [--steps 60]
                                           both: [--arms ...] [--output runs/schedule] [--json] [--quick]

Every arm is `recipes/search_r1/tiny.toml` with batches of 8 groups of 8 and one torch thread per role, and only
`schedule` differs. Arms start from the checkpoint of one warm-up per seed, and face the same tasks in the same order
with the same waits (`schedule_world.py`). Each trains in a separate process, one at a time: a round is every arm once,
and ratios are taken within a round.

"throughput" takes the time from the first rollout to the end of the last step: for asynchronous arms that includes the
steps in which the pipeline fills and drains. "steady" is the time from the end of step 4 to the end of the fourth last
step, in which every arm has as many groups under way as it may. "learning" trains every seed for equally many steps of
equally many trajectories, and evaluates on 600 held-out tasks after every third of them.

Results stay in `--output`: an interrupted benchmark, called again, measures only what is missing. Delete the folder to
measure again."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise_sandbox.kernel.syscalls import set_pdeathsig

RECIPE = Path(__file__).parent.parent / "recipes" / "search_r1" / "tiny.toml"
COMMON = (
    "environment.name=schedule_world:SlowSearch",
    "rollout.tasks_per_step=8",
    "rollout.group_size=8",
    "rollout.max_open=512",  # more than any arm has under way, so that nothing waits for a slot
    "engine.num_threads=1",
    "train.num_threads=1",
    "train.checkpoint_every=0",
    "train.parity_every=0",
    "evaluate.controls={}",
)
ARMS: Mapping[str, tuple[str, ...]] = {
    "synchronous": (),
    "over-draw": ("schedule.overdraw=2",),
    "staleness 1": ("schedule.max_staleness=1",),
    "staleness 2": ("schedule.max_staleness=2",),
    "staleness 4": ("schedule.max_staleness=4",),
}
"""What each arm adds to the recipe."""
LEARNING_ARMS: Mapping[str, tuple[str, ...]] = {
    **ARMS,
    "staleness 4, recomputed": ("schedule.max_staleness=4", "loss.recompute_old=true"),
}
"""Additions for "learning": also ratios to recomputed log-probabilities and truncated importance weights."""
LATENCIES: Mapping[str, tuple[float, float]] = {"slow": (0.2, 2.0), "brief": (0.02, 0.2), "none": (0.0, 0.0)}
"""Median and 99th percentile of a search's wait, in seconds."""
FILL = 4
"""Steps at either end that "steady" leaves out: the largest staleness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run of an arm."""

    part: str
    latency: str
    arm: str
    number: int
    """The round, or the seed of "learning"."""
    recipe: Path = RECIPE
    overrides: tuple[str, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the arm's folder and of its result."""
        return f"{self.part}-{self.latency}-{self.number}-{self.arm}".replace(" ", "").replace(",", "-")


def main() -> None:
    """Measure what is missing, then print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["throughput", "learning"])
    parser.add_argument("--latencies", nargs="+", choices=list(LATENCIES))
    parser.add_argument("--arms", nargs="+", choices=list(LEARNING_ARMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--output", type=Path, default=Path("runs") / "schedule")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a minute or two; the numbers say little")
    arguments = parser.parse_args()
    by_time = arguments.part == "throughput"
    steps = arguments.steps or (24 if by_time else 60)
    numbers: list[int] = list(range(arguments.rounds)) if by_time else arguments.seeds
    warmup: tuple[str, ...] = ()
    latencies = arguments.latencies or (["slow", "none"] if by_time else ["brief"])
    if arguments.quick:
        steps, numbers, warmup = 10, numbers[:1], ("sft.steps=30", "sft.num_demonstrations=1000", "evaluate.tasks=40")
        arguments.output = arguments.output.with_name(arguments.output.name + "-quick")
    arms = ARMS if by_time else LEARNING_ARMS
    results = []
    for number in numbers:
        seed = 0 if by_time else number
        start = run_apart(prepare_start, arguments.output, RECIPE, seed, warmup)
        for latency in latencies:
            for arm in arguments.arms or arms:
                overrides = (*warmup, *COMMON, *LEARNING_ARMS[arm], f"run.seed={seed}", f"train.steps={steps}")
                overrides += ("evaluate.tasks=0",) if by_time else (f"evaluate.every={steps // 3}",)
                median_s, p99_s = LATENCIES[latency]
                overrides += (f"environment.args.median_s={median_s}", f"environment.args.p99_s={p99_s}")
                job = Job(part=arguments.part, latency=latency, arm=arm, number=number, overrides=overrides)
                results.append(run_apart(measure, arguments.output, start, job))
                print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps(results, indent=1))
    else:
        print((tabulate_times if by_time else tabulate_learning)(results))


def run_apart(function: Any, *arguments: Any) -> Any:
    """The result of a call in a separate process, which ends with this one."""
    sys.path.insert(0, str(Path(__file__).parent))  # what a spawned process sees as well
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=set_pdeathsig) as pool:
        return pool.submit(function, *arguments).result()


# ------------------------------------------------------------------------------------------------ one run


def prepare_start(output: Path, recipe: Path, seed: int, warmup: Sequence[str]) -> Path:
    """The checkpoint of the recipe's warm-up; trained if it is not there."""
    from turnwise.config.load import load_config
    from turnwise.runs.train import run_train

    link = output / f"warmup-{seed}"
    if not link.exists():
        overrides = [*warmup, f"run.seed={seed}", f"run.output={output}", "run.name=warmup", "train.steps=0"]
        overrides += ["train.num_threads=1", "evaluate.tasks=0"]
        run_train(load_config([recipe], overrides), resume=None, display=False).rename(link)
    return link / "checkpoints" / "step_000000"


def measure(output: Path, start: Path, job: Job) -> dict[str, Any]:
    """Train one arm from the checkpoint `start`, unless it was trained before, and read its results."""
    import torch

    from turnwise.runs.train import run_train

    torch.set_num_threads(1)
    run, result = output / job.name, output / f"{job.name}.json"
    if not result.exists():
        shutil.rmtree(run, ignore_errors=True)
        prepare_run(run, start, job)
        before = os.times()
        run_train(None, resume=run, display=False)
        after = os.times()
        processor_s = after.user + after.system - before.user - before.system
        row = {**read_result(run, job), "processor_seconds": round(processor_s, 2)}
        result.write_text(json.dumps(row, indent=1), encoding="utf-8")
    return dict(json.loads(result.read_text(encoding="utf-8")))


def prepare_run(run: Path, start: Path, job: Job) -> None:
    """Return a run folder at the end of the warm-up; continuing that run trains the arm."""
    from turnwise.building.checks import check_recipe
    from turnwise.config.load import dump_resolved, load_config
    from turnwise.runs.build import fit_to_machine
    from turnwise.store.run_folder import RunFolder

    config = load_config([job.recipe], [*job.overrides, f"run.name={job.name}"])
    config = fit_to_machine(check_recipe(config)).config
    RunFolder.create(run).write_json("config.json", dump_resolved(config))
    shutil.copytree(start, run / "checkpoints" / start.name)


def read_result(run: Path, job: Job) -> dict[str, Any]:
    """The numbers of a finished run."""
    from turnwise.reporting.summaries import load_summaries
    from turnwise.store.ledger import load_accounts
    from turnwise.store.run_folder import RunFolder

    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    began = next(event["time"] for event in events if event["kind"] == "parity")  # rollouts start right after it
    accounts = load_accounts(run)
    trained = [account for account in accounts if account.fate == "trained"]
    ages = [account.version - account.start_version for account in trained]
    per_step = len(trained) * 8 / len(rows)
    result: dict[str, Any] = {
        "part": job.part,
        "latency": job.latency,
        "arm": job.arm,
        "number": job.number,
        "steps": len(rows),
        "seconds": rows[-1]["time"] - began,
        "seconds_per_1000": (rows[-1]["time"] - began) / (per_step * len(rows)) * 1000,
        "trained_tokens": sum(account.trained for account in accounts),
        "sampled_tokens": sum(account.sampled for account in accounts),
        "sampled_per_trajectory": sum(account.sampled for account in accounts) / (per_step * len(rows)),
        "mean_age": statistics.mean(ages),
        "max_age": max(ages),
        "clip_fraction": statistics.mean(row.get("train/clip_fraction", 0.0) for row in rows),
        "trainer_idle_share": sum(row["schedule/trainer_idle_seconds"] for row in rows) / (rows[-1]["time"] - began),
        "engine_idle_share": sum(row["schedule/engine_idle_seconds"] for row in rows) / (rows[-1]["time"] - began),
        "heldout": {},
    }
    if len(rows) > 2 * FILL:
        steady = rows[FILL - 1 : -FILL]
        seconds = steady[-1]["time"] - steady[0]["time"]
        result["steady_seconds_per_1000"] = seconds / (per_step * (len(steady) - 1)) * 1000
    for summary in load_summaries(run):
        row = next(row for row in summary["rows"] if row["kind"] == "all")
        result["heldout"][summary["step"]] = {key: row[key] for key in ("success", "low", "high")}
    return result


# ------------------------------------------------------------------------------------------------ tables


def tabulate_times(results: Sequence[Mapping[str, Any]]) -> str:
    """One line per latency and arm: median seconds, and their ratio to the synchronous arm's in the same round."""
    lines = [
        "| latency | arm | s per 1,000 | relative to synchronous: median (min to max) | steady: median (min to max) "
        "| sampled tokens | age: mean, max | trainer idle |  |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for latency, arm, rows, base in group_by_arm(results):
        times = [b["seconds_per_1000"] / r["seconds_per_1000"] for r, b in zip(rows, base, strict=True)]
        steady = [b["steady_seconds_per_1000"] / r["steady_seconds_per_1000"] for r, b in zip(rows, base, strict=True)]
        tokens = [r["sampled_per_trajectory"] / b["sampled_per_trajectory"] for r, b in zip(rows, base, strict=True)]
        cells = [
            latency,
            arm,
            f"{median(rows, 'seconds_per_1000'):.1f}",
            spread(times),
            spread(steady),
            f"{statistics.median(tokens):.2f}x",
            f"{median(rows, 'mean_age'):.2f}, {max(r['max_age'] for r in rows)}",
            f"{median(rows, 'trainer_idle_share'):.0%}",
            f"{median(rows, 'engine_idle_share'):.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tabulate_learning(results: Sequence[Mapping[str, Any]]) -> str:
    """One line per latency and arm: final held-out success per seed, and means over seeds during training."""
    seeds = sorted({r["number"] for r in results})
    *_, first, second, last = sorted(results[0]["heldout"], key=int)
    lines = [
        f"| latency | arm | step {first} | step {second} | step {last} | {' | '.join(f'seed {s}' for s in seeds)} "
        f"| step {last} minus synchronous | trained tokens | age: mean, max |",
        f"|---|---|---|---|---|{'---|' * len(seeds)}---|---|---|",
    ]
    for latency, arm, rows, base in group_by_arm(results):
        ends = [r["heldout"][last] for r in rows]
        differences = [end["success"] - b["heldout"][last]["success"] for end, b in zip(ends, base, strict=True)]
        cells = [
            latency,
            arm,
            *(f"{statistics.mean(r['heldout'][step]['success'] for r in rows):.3f}" for step in (first, second, last)),
            *(f"{end['success']:.3f} [{end['low']:.3f}, {end['high']:.3f}]" for end in ends),
            "" if arm == "synchronous" else to_interval(differences),
            f"{median(rows, 'trained_tokens'):,.0f}",
            f"{median(rows, 'mean_age'):.2f}, {max(r['max_age'] for r in rows)}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def group_by_arm(
    results: Sequence[Mapping[str, Any]],
) -> list[tuple[str, str, list[Mapping[str, Any]], list[Mapping[str, Any]]]]:
    """(latency, arm, its rows, the synchronous rows of the same rounds), in the order of measuring."""
    table: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(results, key=lambda r: r["number"]):
        table.setdefault((row["latency"], row["arm"]), []).append(row)
    return [(latency, arm, rows, table[latency, "synchronous"]) for (latency, arm), rows in table.items()]


def median(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Median over rounds or seeds."""
    return statistics.median(float(row[name]) for row in rows)


def spread(values: Sequence[float]) -> str:
    """Format as `1.72 (1.65 to 1.80)`."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def to_interval(differences: Sequence[float]) -> str:
    """Format as `-0.004 ± 0.012`: the mean and a 95% t interval over up to five seeds; for one seed only the mean."""
    mean = statistics.mean(differences)
    if len(differences) < 2:
        return f"{mean:+.3f}"
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}.get(len(differences), 2.57)
    return f"{mean:+.3f} ± {t * statistics.stdev(differences) / math.sqrt(len(differences)):.3f}"


if __name__ == "__main__":
    main()
