"""Check the files of a finished run, whatever was killed on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path


def list_breaches(run: Path, num_steps: int) -> list[str]:
    """What is wrong with the steps in the metrics and with the trained draws in the ledger; empty if nothing is."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if row["phase"] == "train"]
    breaches = [] if steps == list(range(1, num_steps + 1)) else [f"{run} has the steps {steps}"]
    ledger = map(json.loads, (run / "ledger.jsonl").read_text().splitlines())
    fates = Counter(row["draw"] for row in ledger if row["fate"] == "trained")
    return breaches + [f"draw {draw} trained {count} times" for draw, count in fates.items() if count > 1]
