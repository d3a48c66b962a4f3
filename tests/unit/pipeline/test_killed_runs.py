"""The benchmark of random kills, small."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_thirty_kills_lose_nothing(tmp_path: Path) -> None:
    # In an interpreter of its own: lives are forked, and the threads of a parallel test run may hold locks just then.
    command = [sys.executable, "benchmarks/crash.py", "--kills", "30", "--seed", "1", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["kills"] == 30
