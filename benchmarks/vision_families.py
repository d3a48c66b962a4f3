"""Compare every family of vision-language models with transformers alone: the table of docs/vision.md.

    OMP_NUM_THREADS=1 python benchmarks/vision_families.py [NAME ...] [--json FILE]

Each model is tiny, with random weights, on the CPU. `tests/unit/models/vision/family_measures.py` says what is
measured. In bfloat16, "sampled" and "scored" are printed too: how far the replies of five turns are from the model's
own forward, and from what training scores."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/unit/models/vision"))

import torch
from family_measures import NAMES, SIZES, Measured, measure_family
from tiny_seeing import CONFIGS, GENERIC
from transformers.utils.logging import disable_progress_bar

HALF = ("sampled", "scored")
KINDS = (*CONFIGS, *GENERIC)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(KINDS)}; all if none is given")
    parser.add_argument("--json", type=Path, help="file for the rows")
    given = parser.parse_args()
    torch.set_num_threads(1)
    disable_progress_bar()
    rows: dict[str, tuple[Measured, Measured]] = {}
    for name in given.names or KINDS:
        rows[name] = measure_family(name), measure_family(name, dtype="bfloat16")
        print(f"{name}: {max(rows[name][0].gaps.values()):.1e}", file=sys.stderr, flush=True)
    print(write_table(rows))
    if given.json:
        table = {name: [asdict(each) for each in pair] for name, pair in rows.items()}
        given.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def write_table(rows: Mapping[str, tuple[Measured, Measured]]) -> str:
    """Write the rows as Markdown."""
    head = ["family", "path", "prompts", *NAMES, *(f"{name}, bfloat16" for name in HALF)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, (full, half) in rows.items():
        gaps = [f"{full.gaps[key]:.1e}" if full.gaps[key] else "0" for key in NAMES]
        gaps += [f"{half.gaps[key]:.3f}" for key in HALF]
        lines.append(f"| {' | '.join([name, full.path, f'{full.prompts} of {len(SIZES)}', *gaps])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
