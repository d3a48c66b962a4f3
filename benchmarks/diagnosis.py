"""Plant faults in recipes that learn and ask `turnwise diagnose` what is wrong; writes the tables of docs/diagnosis.md.

    python benchmarks/diagnosis.py starts                     # the checkpoints from which every run begins
    python benchmarks/diagnosis.py run [--only NAME ...] [--seeds 0 1 2] [--limit-s 1800]
    python benchmarks/diagnosis.py table [--seeds 1 2] [--also RUN ...]

Every fault is one row of `FAULTS`: a recipe that learns (`BASES`), what is changed in it, and the name of the right
diagnosis. `HEALTHY` are runs without a fault. A run takes 10 to 20 processor seconds. Several processes may `run` side
by side: a run that another process has begun is left to it, and finished ones are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.config.load import load_config
from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.runs.diagnose import diagnose_run
from turnwise.runs.train import run_train
from turnwise.store.run_folder import EVENTS, read_lines

SEARCH, HOUSE, PUSH = "recipes/search_r1/tiny.toml", "houses/house", "push/tiny"
SHORT = (
    "sft.steps=0",
    "train.steps=12",
    "train.num_threads=1",
    "train.checkpoint_every=0",
    "train.parity_every=0",
    "rollout.tasks_per_step=16",
    "engine.num_threads=1",
    "evaluate.tasks=150",
    "evaluate.controls={}",
    # On a machine with other work a call may wait long for its turn.
    "environment.tool_timeout_s=600",
    "rollout.trajectory_timeout_s=1200",
)
WARM_UP = ("train.steps=0", "evaluate.tasks=0")
STARTS = {
    "search": (SEARCH, WARM_UP, "step_000000"),
    "search_done": (SEARCH, ("evaluate.tasks=0",), "step_000050"),
    "house": (HOUSE, WARM_UP, "step_000000"),
    "push": (PUSH, WARM_UP, "step_000000"),
}
"""Checkpoints by name: the recipe that makes them, its changes, and which of its checkpoints."""
BASES = {
    "search": (SEARCH, "search", SHORT),
    "house": (HOUSE, "house", (*SHORT, "evaluate.tasks=100")),
    "push": (PUSH, "push", (*SHORT, "evaluate.tasks=100")),
}
"""Recipes that learn: the recipe, its start, its changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One fault, or one healthy run."""

    name: str
    right: str
    """Name of the right diagnosis; "" for a healthy run."""
    base: str
    changes: tuple[str, ...] = ()
    start: str | None = None
    """Another start than that of the base; "" is random weights."""


def _fault(name: str, right: str, *changes: str, base: str = "search", start: str | None = None) -> Planted:
    return Planted(name=name, right=right, base=base, changes=changes, start=start)


def _kinds(**kinds: float) -> str:
    return "environment.args.kinds={" + ", ".join(f"{kind.strip('_')} = {share}" for kind, share in kinds.items()) + "}"


def _pay(name: str, *, with_task: bool = False) -> str:
    task = 'task = {kind = "task"}, ' if with_task else ""
    return f'rewards={{{task}other = {{kind = "diagnosis_faults:{name}"}}}}'


MORE_HOPS = 'environment.args.kinds={"2hop" = 0.8, "1hop" = 0.2}'

FAULTS = (
    _fault("easy_questions", "too_easy", _kinds(no_search=1.0)),
    _fault("solved_before", "too_easy", 'environment.args.kinds={"2hop" = 0.8, no_search = 0.2}', start="search_done"),
    _fault("search_off", "too_hard", MORE_HOPS, "environment.args.search=off"),
    _fault(
        "documents_shuffled", "too_hard", 'environment.args.kinds={"2hop" = 1.0}', "environment.args.search=shuffled"
    ),
    _fault("same_reward", "constant_reward", _pay("pay_the_same")),
    _fault("any_reply_pays", "constant_reward", _pay("pay_for_a_reply")),
    _fault("coin", "reward_noise", _pay("pay_by_coin")),
    _fault("mostly_coin", "reward_noise", _pay("pay_mostly_by_coin")),
    _fault("random_weights", "format", start=""),
    _fault("random_weights_house", "format", base="house", start=""),
    _fault("entropy_penalty", "entropy_collapse", "loss.entropy_coefficient=-0.3"),
    _fault("entropy_penalty_house", "entropy_collapse", "loss.entropy_coefficient=-0.3", base="house"),
    _fault("short_pays", "length_drift", "credit.shaping.length_weight=8"),
    _fault("long_pays", "hacking", _pay("pay_for_length")),
    _fault("entropy_bonus", "entropy_growth", "loss.entropy_coefficient=0.5"),
    _fault("kl_free_house", "kl_runaway", "loss.kl.coefficient=1e-6", "train.lr=6e-3", base="house"),
    _fault("kl_free_faster_house", "kl_runaway", "loss.kl.coefficient=1e-6", "train.lr=1e-2", base="house"),
    _fault("gspo_epochs", "clip_saturation", "loss.method=gspo", "loss.epochs=16", "train.lr=6e-3"),
    _fault("gspo_updates", "clip_saturation", "loss.method=gspo", "loss.updates_per_step=16", "train.lr=6e-3"),
    _fault("stale", "staleness", "schedule.max_staleness=6", "loss.correction.mode=none", "loss.recompute_old=false"),
    _fault("stale_house", "staleness", "schedule.max_staleness=6", "loss.correction.mode=none", base="house"),
    _fault("hot_engine", "sampler_apart", "engine.kind=diagnosis_faults:HOT"),
    _fault("noisy_engine", "sampler_apart", "engine.kind=diagnosis_faults:NOISY"),
    _fault("frozen", "frozen_weights", "train.lr=1e-10"),
    _fault("frozen_bfloat16", "frozen_weights", "model.dtype=bfloat16", "train.lr=3e-6"),
    _fault("shifted_credit", "credit", "credit.method=diagnosis_faults:shift_members"),
    _fault("last_turn_credit", "credit", "credit.method=diagnosis_faults:credit_last_turn", MORE_HOPS),
    _fault("reversed_credit", "credit", "credit.method=diagnosis_faults:reverse_early_turns", MORE_HOPS),
    _fault("one_turn", "truncation", "rollout.max_turns=1"),
    _fault("four_tokens", "truncation", "rollout.max_turn_tokens=4"),
    _fault("cut_left_out", "truncation", "rollout.max_turn_tokens=4", "rollout.train_truncated=false"),
    _fault("tool_down", "tool_failing", "environment.name=diagnosis_faults:BrokenSearch"),
    _fault("tool_often_down", "tool_failing", "environment.name=diagnosis_faults:OftenBrokenSearch"),
    _fault("cold", "duplicate_groups", "rollout.temperature=0.05"),
    _fault("one_seed", "duplicate_groups", "engine.kind=diagnosis_faults:ONE_SEED"),
    _fault("high_rate", "lr_high", "train.lr=0.05"),
    _fault("high_rate_house", "lr_high", "train.lr=0.03", base="house"),
    _fault("many_epochs", "lr_high", "loss.epochs=16", "train.lr=6e-3"),
    _fault("many_updates", "lr_high", "loss.updates_per_step=16", "train.lr=6e-3"),
    _fault("low_rate", "lr_low", "train.lr=1e-6"),
    _fault("low_rate_house", "lr_low", "train.lr=1e-6", base="house"),
    _fault("unknown_pays", "hacking", _pay("pay_for_unknown")),
    _fault("names_pay", "hacking", _pay("pay_for_a_name")),
    _fault("calls_pay", "hacking", _pay("pay_for_calls")),
    _fault("one_kind", "overfitting", "environment.name=diagnosis_faults:OneSidedSearch"),
    _fault("two_kinds", "overfitting", "environment.name=diagnosis_faults:NarrowSearch"),
    _fault("few_heldout", "evaluation_noise", "evaluate.tasks=12", "train.steps=3", "evaluate.temperature=1.0"),
    _fault("few_heldout_house", "evaluation_noise", "evaluate.tasks=15", "train.steps=3", base="house"),
    _fault("observations", "observations_train", "loss.mask_observations=false"),
)
HEALTHY = (
    *(_fault(f"{base}_{letter}", "", base=base) for base in BASES for letter in "ab"),
    # Too early for success to have risen, so that nothing but the rules keeps silent.
    *(_fault(f"{base}_early", "", "train.steps=5", base=base) for base in BASES),
    *(_fault(f"{base}_slow", "", "train.lr=3e-4", base=base) for base in BASES),
    _fault("search_kl", "", "loss.kl.coefficient=0.01"),
    _fault("search_rloo", "", "credit.method=rloo"),
    _fault("search_updates", "", "loss.updates_per_step=4", "train.lr=1e-3"),
    _fault("search_stale", "", "schedule.max_staleness=1"),
    _fault("search_half_rate", "", "train.lr=1e-3"),
    _fault("house_outcome", "", "credit.method=grpo", base="house"),
)


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("starts", "run", "table"))
    parser.add_argument("--output", type=Path, default=Path("runs/diagnosis"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", default=[], help="Names of rows; default: all.")
    parser.add_argument("--limit-s", type=float, default=1e9, help="Begin no run after so many seconds.")
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="Further healthy runs for the table.")
    arguments = parser.parse_args()
    # A fault is a module beside this file, in the processes of a run too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    if arguments.command == "starts":
        make_starts(arguments.output)
    elif arguments.command == "run":
        run_all(arguments.output, arguments.seeds, arguments.only, arguments.limit_s)
    else:
        print_tables(arguments.output, arguments.seeds, arguments.only, arguments.also)


def make_starts(output: Path) -> None:
    """Train the checkpoints that are missing."""
    for name, (recipe, changes, checkpoint) in STARTS.items():
        target = output / "starts" / name
        if target.exists():
            continue
        overrides = [*changes, f"run.output={output / 'warm'}", f"run.name={name}", "run.seed=0"]
        # Two threads beside other work are many times slower than one.
        overrides += ["train.num_threads=1", "engine.num_threads=1"]
        run = run_train(load_config([Path(recipe)], overrides), resume=None, display=False)
        shutil.copytree(run / "checkpoints" / checkpoint, target)
        print(target, flush=True)


def run_all(output: Path, seeds: Sequence[int], only: Sequence[str], limit_s: float) -> None:
    """Run what has not been run, all rows of one seed before the next."""
    began = time.monotonic()
    for seed in seeds:
        for row in (*FAULTS, *HEALTHY):
            place = output / "runs" / f"{row.name}-{seed}"
            if (only and row.name not in only) or time.monotonic() - began > limit_s:
                continue
            try:
                place.mkdir(parents=True)
            except FileExistsError:
                continue
            used = time.process_time()
            problem = run_one(row, seed, output, place)
            done = {"processor_s": round(time.process_time() - used, 1), "ended": problem}
            (place / "done.json").write_text(json.dumps(done))
            print(f"{row.name} {seed} {done}", flush=True)


def run_one(row: Planted, seed: int, output: Path, place: Path) -> str:
    """Train one row; returns what ended it early, "" if nothing did."""
    recipe, start, changes = BASES[row.base]
    start = start if row.start is None else row.start
    path = [f"model.path={output / 'starts' / start}"] if start else []
    overrides = [*changes, *path, *row.changes, f"run.output={place}", f"run.name={row.name}", f"run.seed={seed}"]
    try:
        run_train(load_config([Path(recipe)], overrides), resume=None, display=False)
    except TurnwiseError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One run beside what was said of it."""

    row: Planted
    seed: int
    causes: tuple[str, ...]
    """What `turnwise diagnose` says, in its order."""
    alarms: tuple[str, ...]
    """What was said while it ran."""
    learned: bool

    @property
    def is_found(self) -> bool:
        """Whether the right name comes first."""
        return self.causes[:1] == (self.row.right,)


def print_tables(output: Path, seeds: Sequence[int], only: Sequence[str], also: Sequence[Path]) -> None:
    """Print what was found per fault, and what healthy runs were accused of."""
    faults = [each for row in FAULTS if not only or row.name in only for each in look_all(row, seeds, output)]
    healthy = [each for row in HEALTHY if not only or row.name in only for each in look_all(row, seeds, output)]
    healthy += [look(Planted(name=path.name, right="", base=""), 0, path) for path in also]
    print("| fault | recipe and changes | right name | first in | what else came first |\n|---|---|---|---|---|")
    for row in FAULTS:
        runs = [each for each in faults if each.row is row]
        if not runs:
            continue
        wrong = [each.causes[0] if each.causes else "nothing" for each in runs if not each.is_found]
        changes = " ".join(f"`{change}`" for change in row.changes) or f"starts from {row.start or 'random weights'}"
        found = f"{sum(each.is_found for each in runs)} of {len(runs)}"
        print(f"| {row.name} | {row.base}: {changes} | {row.right} | {found} | {', '.join(wrong)} |")
    print_share("faults with the right name first", [each.is_found for each in faults])
    print_share("faults with the right name anywhere", [each.row.right in each.causes for each in faults])
    print_share("faults named by an alarm while they ran", [each.row.right in each.alarms for each in faults])
    print("\n| healthy run | success rose | accused of | alarms |\n|---|---|---|---|")
    for each in healthy:
        rose = "yes" if each.learned else "no"
        print(f"| {each.row.name} {each.seed} | {rose} | {', '.join(each.causes)} | {', '.join(each.alarms)} |")
    print_share("healthy runs accused", [bool(each.causes) for each in healthy])
    print_share("healthy runs accused by an alarm while they ran", [bool(each.alarms) for each in healthy])


def print_share(what: str, hits: Sequence[bool]) -> None:
    """Print a share with its Wilson interval."""
    low, high = compute_wilson_interval(sum(hits), len(hits))
    share = sum(hits) / max(1, len(hits))
    print(f"\n{what}: {sum(hits)} of {len(hits)}, {share:.3f} [{low:.3f}, {high:.3f}]")


def look_all(row: Planted, seeds: Sequence[int], output: Path) -> list[Seen]:
    """Diagnose the finished runs of one row."""
    places = [(seed, output / "runs" / f"{row.name}-{seed}") for seed in seeds]
    return [
        look(row, seed, next(path for path in place.iterdir() if path.is_dir()))
        for seed, place in places
        if (place / "done.json").exists() and any(path.is_dir() for path in place.iterdir())
    ]


def look(row: Planted, seed: int, run: Path) -> Seen:
    """Diagnose one run."""
    diagnosis = diagnose_run(run)
    names = re.compile(r"\((\w+) in docs/diagnosis.md\)")
    texts = [event["text"] for event in read_lines(run / EVENTS) if event["kind"] == "alarm"]
    return Seen(
        row=row,
        seed=seed,
        causes=tuple(finding.cause for finding in diagnosis.findings),
        alarms=tuple(dict.fromkeys(name for text in texts for name in names.findall(text))),
        learned=diagnosis.learned,
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
