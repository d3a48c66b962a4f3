"""Train the search recipe with models of several kinds, from random weights, and audit every run.

    OMP_NUM_THREADS=1 python benchmarks/model_kinds.py [--output FOLDER] [--seed N] [--kinds qwen3 qwen3_5 ...]

Each kind is `recipes/search_r1/tiny.toml` with a file of `recipes/models/` over it; "qwen3" is the recipe itself.
Existing runs in FOLDER are read, not trained again. Prints a row per kind: parameters, path, held-out success before
and after RL with 95% intervals, the two controls, what the audit finds, and processor seconds."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipes" / "search_r1" / "tiny.toml"
KINDS = ("qwen3", "qwen3_5", "lfm2", "gemma3", "gpt_oss")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/model_kinds"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    given = parser.parse_args()
    print("| kind | path | before RL | after RL | search off | shuffled | audit | processor s |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in given.kinds:
        folder = find_run(given.output, kind, given.seed)
        if folder is None:
            train(given.output, kind, given.seed)
            folder = find_run(given.output, kind, given.seed)
            assert folder is not None
        print(describe(kind, folder), flush=True)


def find_run(output: Path, kind: str, seed: int) -> Path | None:
    """The finished run of a kind; None if there is none."""
    done = output.glob(f"{kind}-seed{seed}-*/evaluations/heldout_000050_documents_shuffled.summary.json")
    return next((path.parents[1] for path in sorted(done)), None)


def train(output: Path, kind: str, seed: int) -> None:
    """Run the recipe, and store its processor seconds beside it."""
    over = [] if kind == "qwen3" else [str(ROOT / "recipes" / "models" / f"{kind}.toml")]
    options = [f"run.output={output}", f"run.name={kind}", f"run.seed={seed}", "train.num_threads=1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "turnwise", "train", str(RECIPE), *over, *options], check=True, stdout=2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    folder = find_run(output, kind, seed)
    assert folder is not None
    (folder / "processor_seconds.json").write_text(json.dumps(round(seconds)))


def describe(kind: str, folder: Path) -> str:
    """The table row of a run."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    path = next(event["text"] for event in events if str(event.get("text", "")).startswith("model: "))
    audit = subprocess.run(
        [sys.executable, "-m", "turnwise", "audit", str(folder)], capture_output=True, text=True, check=False
    )
    seconds = folder / "processor_seconds.json"
    cells = [
        kind,
        "generic" if "generic path" in path else "fast",
        read_success(folder, "heldout_000000"),
        read_success(folder, "heldout_000050"),
        read_success(folder, "heldout_000050_search_off"),
        read_success(folder, "heldout_000050_documents_shuffled"),
        "no breach" if audit.returncode == 0 else audit.stdout.strip().splitlines()[-1],
        f"{json.loads(seconds.read_text()):,}" if seconds.exists() else "",
    ]
    return f"| {' | '.join(cells)} |"


def read_success(folder: Path, name: str) -> str:
    """Success in an evaluation, with its interval."""
    summary = json.loads((folder / "evaluations" / f"{name}.summary.json").read_text())
    row = next(row for row in summary["rows"] if row["kind"] == "all")
    return f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


if __name__ == "__main__":
    main()
