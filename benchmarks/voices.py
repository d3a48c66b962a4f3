"""Train all recipes with several voices, and print one table, that of docs/voices.md.

    python benchmarks/voices.py train [--output runs/voices] [--seeds 0 1 2] [--only memory_chunks relay]
    python benchmarks/voices.py table RUN [RUN ...]

`train` makes the runs one after the other, each with the command line of its recipe and one thread, and resumes where
it was stopped: an arm and seed with a finished run are not trained again. An arm may start from a checkpoint of another
one with the same seed. Then it prints the table of all runs. `table` prints the table of any run folders.

One row per run with an evaluation: held-out success with its 95% Wilson interval before RL, after it, and after it in
each control, and the processor minutes of the whole command, which are known for runs made by `train`. Other figures
are printed by the commands listed with the arms."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.reporting.summaries import Summary, is_control, load_summaries, row_of

CPU_FILE = "processor_s.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A recipe, or a control that is a separate run."""

    name: str
    recipes: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    """Options of the recipe; `{NAME}` stands for the run folder of that arm with the same seed."""
    then: tuple[str, ...] = ()
    """`turnwise` commands that receive the run and print its further figures."""


JUDGE = "roles.judge=frozen:{judge}/checkpoints/step_000020"
WARM_PROPOSER = ("model.path={proposer_search}/checkpoints/step_000000", "model.config={}", "sft.steps=0")
NO_LEAD = "credit.options={scale=2.0,decay=0.997,lead=0}"
ARMS = (
    Arm(name="memory_chunks", recipes=("memory/chunks",)),
    Arm(
        name="memory_chunks_last",
        recipes=("memory/chunks",),
        overrides=("credit.method=turn_discount", "credit.options={gamma=0.0}"),
    ),
    Arm(name="memory_operations", recipes=("memory/operations",)),
    Arm(name="memory_rolling", recipes=("memory/rolling",)),
    Arm(name="memory_fold", recipes=("memory/fold",)),
    Arm(name="delegate_search", recipes=("delegate/search",)),
    Arm(
        name="delegate_one",
        recipes=("delegate/search",),
        overrides=("environment.args.agents=one", "train.steps=40", 'evaluate.controls={search_off={search="off"}}'),
    ),
    Arm(name="reflection_retry", recipes=("reflection/retry",)),
    Arm(name="reflection_score", recipes=("reflection/score",)),
    Arm(
        name="reflection_naive",
        recipes=("reflection/score", "reflection/naive"),
        overrides=("model.path={reflection_score}/checkpoints/step_000000",),
    ),
    Arm(
        name="reflection_stage1",
        recipes=("reflection/score", "reflection/stage1"),
        overrides=("model.path={reflection_score}/checkpoints/step_000000",),
    ),
    Arm(
        name="reflection_stage2",
        recipes=("reflection/score", "reflection/stage2"),
        overrides=("model.path={reflection_stage1}/checkpoints/step_000020",),
    ),
    Arm(name="planning_countdown", recipes=("planning/countdown",), then=("search",)),
    Arm(name="planning_plan", recipes=("planning/plan",)),
    Arm(name="kuhn", recipes=("games/kuhn",), then=("exploitability",)),
    Arm(
        name="kuhn_fixed",
        recipes=("games/kuhn",),
        overrides=("roles.player1=scripted:uniform",),
        then=("exploitability",),
    ),
    Arm(
        name="kuhn_past",
        recipes=("games/kuhn",),
        overrides=(
            "environment.args.opponent=true",
            "roles.opponent=past:uniform",
            "rollout.tasks_per_step=12",
            "rollout.group_size=16",
        ),
        then=("exploitability",),
    ),
    Arm(name="leduc", recipes=("games/leduc",), then=("exploitability",)),
    Arm(name="tictactoe", recipes=("games/tictactoe",), then=("exploitability",)),
    Arm(name="nim", recipes=("games/nim",), then=("exploitability",)),
    Arm(name="negotiation", recipes=("games/negotiation",)),
    Arm(name="negotiation_selfish", recipes=("games/negotiation",), overrides=("environment.args.prosocial=0",)),
    Arm(name="proposer_search", recipes=("proposer/search",)),
    Arm(
        name="proposer_uniform",
        recipes=("proposer/search",),
        overrides=(*WARM_PROPOSER, "roles.proposer=scripted:uniform", NO_LEAD),
    ),
    Arm(
        name="proposer_prior",
        recipes=("proposer/search",),
        overrides=(*WARM_PROPOSER, "roles.proposer=scripted:prior", NO_LEAD),
    ),
    Arm(
        name="proposer_learnability",
        recipes=("proposer/search",),
        overrides=(*WARM_PROPOSER, "environment.args.pay=learnability", "credit.method=grpo", "credit.options={}"),
    ),
    Arm(name="proposer_programs", recipes=("proposer/programs",)),
    Arm(name="relay", recipes=("teams/relay",)),
    Arm(name="judge", recipes=("teams/judge",)),
    Arm(name="debate", recipes=("teams/debate",), overrides=(JUDGE,)),
    Arm(name="consultancy", recipes=("teams/debate",), overrides=(JUDGE, "environment.args.protocol=consultancy")),
    Arm(name="debate_unverified", recipes=("teams/debate",), overrides=(JUDGE, "environment.args.verify=false")),
)


def main() -> None:
    """Train or read, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="command", required=True)
    train = parts.add_parser("train")
    train.add_argument("--output", type=Path, default=Path("runs/voices"))
    train.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    train.add_argument("--only", nargs="+", choices=[arm.name for arm in ARMS], default=[arm.name for arm in ARMS])
    table = parts.add_parser("table")
    table.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "table":
        print_table(arguments.runs)
        return
    arms = [arm for arm in ARMS if arm.name in arguments.only]
    print_table([train_arm(arm, seed, arguments.output) for arm in arms for seed in arguments.seeds])


def train_arm(arm: Arm, seed: int, output: Path) -> Path:
    """The folder of a finished run of the arm, trained if there is none. Raises SystemExit when the training fails."""
    finished = find_run(arm.name, seed, output)
    if finished is not None:
        return finished
    others = {other.name: str(find_run(other.name, seed, output)) for other in ARMS}
    command = [sys.executable, "-m", "turnwise", "train", *arm.recipes]
    command += [f"run.name={arm.name}", f"run.seed={seed}", f"run.output={output}"]
    command += ["train.num_threads=1", "engine.num_threads=1"]
    for override in arm.overrides:
        for name, folder in others.items():
            override = override.replace(f"{{{name}}}", folder)
        command.append(override)
    running = subprocess.Popen(command, stdout=sys.stderr, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(running.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    run = newest(arm.name, seed, output)
    (run / CPU_FILE).write_text(json.dumps(usage.ru_utime + usage.ru_stime))
    for then in arm.then:
        subprocess.run([sys.executable, "-m", "turnwise", then, str(run)], check=True)
    return run


def find_run(name: str, seed: int, output: Path) -> Path | None:
    """The newest run of an arm and seed that `train` saw finish; None if there is none."""
    runs = [run for run in output.glob(f"{name}-seed{seed}-*") if (run / CPU_FILE).exists()]
    return max(runs, key=lambda run: run.name, default=None)


def newest(name: str, seed: int, output: Path) -> Path:
    """The newest run of an arm and seed."""
    return max(output.glob(f"{name}-seed{seed}-*"), key=lambda run: run.name)


def print_table(runs: Sequence[Path]) -> None:
    """Print a Markdown table with one line per run."""
    print("| run | seed | before RL | after RL | controls | processor min |\n|---|---|---|---|---|---|")
    for run in runs:
        summaries = load_summaries(run)
        plain = [summary for summary in summaries if not is_control(summary)]
        if not plain:
            continue
        last = plain[-1]["step"]
        controls = [summary for summary in summaries if is_control(summary) and summary["step"] == last]
        named = "; ".join(f"{each['label'].rpartition(', ')[2]} {describe(each)}" for each in controls)
        name, _, rest = run.name.rpartition("-seed")
        cpu = run / CPU_FILE
        minutes = f"{json.loads(cpu.read_text()) / 60:.1f}" if cpu.exists() else ""
        print(f"| {name} | {rest.split('-')[0]} | {describe(plain[0])} | {describe(plain[-1])} | {named} | {minutes} |")


def describe(summary: Summary) -> str:
    """Success on all tasks, with its interval."""
    row = row_of(summary, "all")
    return "" if row is None else f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


if __name__ == "__main__":
    main()
