"""The benchmark of random kills, small."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from crash import crash_runs


def test_thirty_kills_lose_nothing(tmp_path: Path) -> None:
    summary = crash_runs(30, seed=1, folder=tmp_path, max_life_s=0.2)
    assert summary["ok"], summary["breaches"]
    assert summary["kills"] == 30
