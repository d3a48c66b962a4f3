"""What a run wrote, without what a clock measured, so that two runs can be compared."""

from pathlib import Path
from typing import Any

from turnwise.store.run_folder import RunFolder

TIMES = ("time", "seconds", "_per_s")


def read_rows(run: Path) -> list[dict[str, Any]]:
    """Every row of the metrics; a redone step has no schedule."""
    rows = RunFolder.open(run).read_metrics()
    return [{k: v for k, v in row.items() if not k.endswith(TIMES) and "schedule/" not in k} for row in rows]
