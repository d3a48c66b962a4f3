"""Compare whole GRPO steps with tools: Turnwise and TRL's `GRPOTrainer` (`tools=`), step by step in turns, as JSON on
standard output.

    peers/setup.sh                                  # once: TRL in an environment of its own
    python benchmarks/step.py [--seeds 3] [--steps 8] [--model FOLDER] [--rows 16] [a.b=value ...]

Both sides start from the same weights (random ones after a short warm-up on demonstrations with slips, made here unless
`--model` names them), see the same questions in the same order, call the same Python functions, use the same reward
function, and take the same kind of step (`step.toml`). They run as two processes, one of which waits while the other
works, so that other load on the machine affects both. The first step of each process does not count. `step_side.py`
says what the phases are; "ratio" is TRL's seconds over Turnwise's, of the wall clock and of the processor (the one to
read where other work runs on the machine). Interrupted, it prints the seeds that are finished.

Differences beyond the compared code: the log-probabilities of the sampled tokens come from the sampler here, while TRL
takes the old ones from the same forward pass as the new ones (equal at one update per batch); TRL's padded rows against
packed tokens; where a reply calls two tools or writes a malformed call, the texts that go back may differ;
`prompts_equal` says whether the token ids of all prompts are the same."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from step_side import PHASES

ROOT = Path(__file__).parent.parent
RECIPE = Path(__file__).with_name("step.toml")
SIDES = ("turnwise", "trl")
COMMANDS = {
    "turnwise": [sys.executable, str(Path(__file__).with_name("step_turnwise.py"))],
    "trl": [str(ROOT / ".venv-peers" / "bin" / "python"), str(ROOT / "peers" / "trl_step.py")],
}
PREPARED_IN = Path("runs") / "benchmark-step"


class Process:
    """One side, running."""

    def __init__(self, side: str, settings: Mapping[str, Any], log: Path) -> None:
        """Starts it; raises RuntimeError with the end of its log if it does not start."""
        self._side, self._log = side, log
        path = os.pathsep.join([str(RECIPE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._errors = log.open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            COMMANDS[side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self.ready = self.ask(settings)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a line, and wait for one."""
        line = ""
        if self._process.stdin and self._process.stdout:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(message) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
        if not line:
            self.close()
            end = "".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[-20:])
            raise RuntimeError(f"{self._side} ended without an answer; the end of what it said:\n{end}")
        return dict(json.loads(line))

    def close(self) -> None:
        """Close its input, and wait for its end."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def prepare_model(overrides: Sequence[str]) -> str:
    """Warm up, unless an earlier run of this benchmark has; the checkpoint's path."""
    checkpoints = sorted(PREPARED_IN.glob("*/checkpoints/step_000000/config.json"))
    if checkpoints and not overrides:
        return str(checkpoints[-1].parent.resolve())
    environment = {**os.environ, "PYTHONPATH": str(RECIPE.parent)}
    command = [*COMMANDS["turnwise"], "prepare", str(PREPARED_IN.resolve()), *overrides]
    return str(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)["model"])


def run_seed(seed: int, options: argparse.Namespace, model: str, folder: Path) -> dict[str, Any]:
    """Run all steps of one seed; returns the rows of each side, and whether the prompts are the same."""
    shared = {"recipe": str(RECIPE), "model": model, "seed": seed, "steps": options.steps + 1}
    processes: dict[str, Process] = {}
    rows: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    try:
        ours = {**shared, "output": str(folder / f"turnwise-{seed}"), "overrides": options.overrides}
        processes["turnwise"] = Process("turnwise", ours, folder / f"turnwise-{seed}.log")
        ready = processes["turnwise"].ready
        theirs = {**shared, "max_completion_tokens": ready["max_completion_tokens"], "rows": options.rows}
        processes["trl"] = Process("trl", theirs, folder / f"trl-{seed}.log")
        for step in range(options.steps + 1):
            for side in SIDES if step % 2 else reversed(SIDES):
                rows[side].append(processes[side].ask({}))
            seconds = " ".join(
                f"{side} {rows[side][-1]['seconds']:.1f} s, reward {rows[side][-1]['reward']:.2f};" for side in SIDES
            )
            print(f"seed {seed} step {step}: {seconds}", file=sys.stderr, flush=True)
    finally:
        for process in processes.values():
            process.close()
    prompts = {side: processes[side].ready["prompts"] for side in SIDES}
    return {
        "seed": seed,
        "prompts_equal": prompts["turnwise"] == prompts["trl"],
        "prompt_tokens": {side: statistics.fmean(map(len, prompts[side])) for side in SIDES},
        "trl_version": processes["trl"].ready["version"],
        "rows": rows,
    }


def summarize(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians over the steps that count, the ratio step by step, and the reward curves."""
    kept = {side: [row for run in runs for row in run["rows"][side][1:]] for side in SIDES}
    pairs = list(zip(kept["turnwise"], kept["trl"], strict=True))
    ratios = {key: [trl[key] / ours[key] for ours, trl in pairs] for key in ("seconds", "processor_seconds")}
    phases = {
        side: {name: statistics.median(row["phases"][name] for row in rows) for name in PHASES}
        for side, rows in kept.items()
    }
    return {
        **{
            f"{key}_per_step": {side: statistics.median(row[key] for row in kept[side]) for side in SIDES}
            for key in ratios
        },
        "ratio": {
            key: {"median": statistics.median(values), "min": min(values), "max": max(values)}
            for key, values in ratios.items()
        },
        "phases": phases,
        "sampled_tokens": {side: statistics.fmean(row["tokens"]["sampled"] for row in kept[side]) for side in SIDES},
        "tool_calls": {side: statistics.fmean(row["tool_calls"] for row in kept[side]) for side in SIDES},
        "rewards": {side: [[row["reward"] for row in run["rows"][side]] for run in runs] for side in SIDES},
        "reward_difference": compare_rewards(runs),
    }


def compare_rewards(runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Mean reward over all steps, Turnwise minus TRL per seed: the mean over seeds and its standard error (None with
    one seed)."""
    means = [[statistics.fmean(row["reward"] for row in run["rows"][side]) for side in SIDES] for run in runs]
    differences = [ours - theirs for ours, theirs in means]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return {"mean": statistics.fmean(differences), "standard_error": error}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs, each with questions of its own")
    parser.add_argument("--steps", type=int, default=8, help="steps that count, of each side and seed")
    parser.add_argument("--model", default="", help="Hugging Face folder both start from")
    parser.add_argument("--rows", type=int, default=16, help="TRL's sequences per forward and backward pass")
    parser.add_argument("--logs", type=Path, default=None, help="folder for what the sides print; thrown away without")
    parser.add_argument("overrides", nargs="*", help="a.b=value for Turnwise's recipe")
    options = parser.parse_args()
    if not Path(COMMANDS["trl"][0]).exists():
        parser.error(f"{COMMANDS['trl'][0]} is missing; run peers/setup.sh first")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        model = str(Path(options.model).resolve()) if options.model else prepare_model(options.overrides)
        runs: list[dict[str, Any]] = []
        try:
            for seed in range(options.seeds):
                runs.append(run_seed(seed, options, model, folder))
        except KeyboardInterrupt:
            if not runs:
                raise
    settings = {"seeds": len(runs), "steps": options.steps, "rows": options.rows, "overrides": options.overrides}
    print(json.dumps({**settings, **summarize(runs), "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
