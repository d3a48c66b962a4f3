"""Compare reinforcement learning of an adapter and of all weights from the same checkpoint, as JSON on standard output.

    python benchmarks/lora_learning.py --output FOLDER [--seeds 0 1 2] [--rank 16] [--lrs 2e-3 6e-3 2e-2]
                                       [a.b=value ...]

The recipe is the search world's in test size (recipes/search_r1/tiny.toml, tests/data/learning.toml): its warm-up
trains all weights and is shared; then both train with the recipe's steps. Prints held-out success before, and after
with full weights at the recipe's rate and with the adapter at every rate of `--lrs`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from turnwise.config.load import load_config
from turnwise.runs.audit import audit_run
from turnwise.runs.sft import run_sft
from turnwise.runs.train import run_train

ROOT = Path(__file__).parent.parent
RECIPES = [ROOT / "recipes" / "search_r1" / "tiny.toml", ROOT / "tests" / "data" / "learning.toml"]


def read_success(run: Path, step: int) -> float:
    """Held-out success."""
    summary = json.loads((run / "evaluations" / f"heldout_{step:06d}.summary.json").read_text(encoding="utf-8"))
    return next(float(row["success"]) for row in summary["rows"] if row["kind"] == "all")


def train(base: Path, overrides: list[str]) -> dict[str, Any]:
    """One run from `base`."""
    config = load_config(RECIPES, [*overrides, f"model.path={base}", "sft.steps=0"])
    began = time.process_time()
    run = run_train(config, resume=None, display=False)
    seconds = time.process_time() - began
    return {
        "before": read_success(run, 0),
        "after": read_success(run, config.train.steps),
        "processor_s": round(seconds, 1),
        "breaches": len(audit_run(run).breaches),
    }


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lrs", type=float, nargs="+", default=[2e-3, 6e-3, 2e-2])
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        common = [f"run.seed={seed}", f"run.output={arguments.output}", "evaluate.controls={}", *arguments.overrides]
        base = run_sft(load_config(RECIPES, [*common, "evaluate.tasks=0"]), display=False)
        base /= "checkpoints/step_000000"
        contenders = {"full": ["run.name=full"]}
        for lr in arguments.lrs:
            contenders[f"adapter, rank {arguments.rank}, lr {lr:g}"] = [
                f"run.name=adapter_{lr:g}",
                f"train.lr={lr}",
                f"model.lora={{rank={arguments.rank}, alpha={2.0 * arguments.rank}}}",
            ]
        for name, changes in contenders.items():
            print(json.dumps({"seed": seed, "trains": name, **train(base, [*common, *changes])}), flush=True)


if __name__ == "__main__":
    main()
