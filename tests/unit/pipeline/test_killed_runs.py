"""The benchmark of random kills, small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("num_kills", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_lose_nothing(tmp_path: Path, num_kills: int) -> None:
    # In an interpreter of its own: lives are forked, and the threads of a parallel test run may hold locks just then.
    command = [
        sys.executable,
        "benchmarks/crash.py",
        "--kills",
        str(num_kills),
        "--seed",
        "1",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["kills"] == num_kills
