"""Arms of an experiment, trained one after the other with the command lines of their recipes, and their table.

An arm and seed with a finished run are not trained again, so a command resumes where it was stopped. The table has one
row per run with an evaluation: held-out success with its 95% Wilson interval before RL, after it, and after it in each
control, and the processor minutes of the whole command, which are known for runs made here."""

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


def run_arms(arms: Sequence[Arm], *, output: Path, description: str | None) -> None:
    """The command line of an experiment: `train` its arms into a folder, or print the `table` of any run folders."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="command", required=True)
    train = parts.add_parser("train")
    train.add_argument("--output", type=Path, default=output)
    train.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    train.add_argument("--only", nargs="+", choices=[arm.name for arm in arms], default=[arm.name for arm in arms])
    table = parts.add_parser("table")
    table.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "table":
        print_table(arguments.runs)
        return
    chosen = [arm for arm in arms if arm.name in arguments.only]
    print_table([train_arm(arm, seed, arguments.output, arms) for arm in chosen for seed in arguments.seeds])


def train_arm(arm: Arm, seed: int, output: Path, arms: Sequence[Arm]) -> Path:
    """The folder of a finished run of the arm, trained if there is none. Raises SystemExit if the training fails."""
    finished = find_run(arm.name, seed, output)
    if finished is not None:
        return finished
    others = {other.name: str(find_run(other.name, seed, output)) for other in arms}
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
