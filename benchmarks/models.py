"""Try every causal language model of transformers in Turnwise: a table of its path and its distance from transformers.

    OMP_NUM_THREADS=1 python benchmarks/models.py [NAME ...] [--json FILE] [--markdown FILE] [--limit SECONDS]

Each model is tiny, with random weights, on the CPU, and is measured in a separate process: one that crashes or hangs
gets a row like the others. Numbers are the largest difference of a token's log-probability, in nats, and for `step` the
fraction of an optimizer step that differs (see `tests/model_measures.py`). Names are model types, or those of
`tests/model_exceptions.py` for variants of them; without names all are measured."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import torch
import transformers
from every_model import list_names
from model_measures import BOUNDS, Measured, measure_model

# Children share what is imported here, which takes longer than most models.
PROCESSES = multiprocessing.get_context("fork")
LIMIT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="model types and variants; all if none is given")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--markdown", type=Path, help="file for the table; printed if not given")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one model")
    given = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    rows = []
    for name in given.names or list_names():
        rows.append(measure_apart(name, given.limit))
        print(f"{name}: {rows[-1].path} {largest_gap(rows[-1]):.1e}", file=sys.stderr, flush=True)
    table = to_markdown(rows)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    if given.markdown:
        given.markdown.write_text(table, encoding="utf-8")
    else:
        print(table)
    print(f"{len(rows)} models in {time.perf_counter() - started:.0f} s", file=sys.stderr)


def measure_apart(name: str, limit_s: float) -> Measured:
    """Measure one model in a separate process; "failed" if it ends without a row or exceeds the limit."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    with tempfile.TemporaryFile("w+") as log:
        process = PROCESSES.Process(target=_measure, args=(name, sender, log.fileno()))
        process.start()
        sender.close()
        row = None
        if receiver.poll(limit_s):
            try:
                row = receiver.recv()
            except EOFError:  # it ended without output
                process.join(5)
        else:
            process.kill()
        process.join()
        if isinstance(row, Measured):
            return row
        log.seek(0)
        last = (log.read().strip().splitlines() or [""])[-1]
    reason = f"took longer than {limit_s:.0f} s" if process.exitcode == -9 else f"ended with {process.exitcode}: {last}"
    return Measured(name=name, path="failed", reason=reason)


def _measure(name: str, sender: Connection, log: int) -> None:
    import os

    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    sender.send(measure_model(name))


def largest_gap(row: Measured) -> float:
    """The largest gap in a row; NaN if nothing was measured."""
    return max(row.gaps.values(), default=math.nan)


def to_markdown(rows: Sequence[Measured]) -> str:
    """The table, and the number of models on each path."""
    titles = ["model", "path", *BOUNDS, "bfloat16", "why"]
    lines = [_line(titles), _line(["---"] * len(titles))]
    for row in rows:
        failures = "; ".join(f"{gap}: {text}" for gap, text in row.failures.items())
        why = " ".join(part for part in (row.reason, failures) if part)
        gaps = [f"{row.gaps[gap]:.0e}" if gap in row.gaps else "" for gap in BOUNDS]
        lines.append(_line([row.name, row.path, *gaps, row.bfloat16, why.replace("|", "\\|")]))
    counts = Counter(row.path for row in rows)
    told = ", ".join(f"{count} {path}" for path, count in counts.most_common())
    return "\n".join([*lines, "", f"transformers {transformers.__version__}, {len(rows)} models: {told}.", ""])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
