"""Small runs in processes of their own, and what is seen of them from outside."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from processes import read_processes
from run_rows import read_rows

RECIPE = Path(__file__).parents[1] / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    *("tokenizer.num_texts=200", "sft.steps=3", "sft.num_demonstrations=32", "train.num_threads=1"),
    *("evaluate.tasks=4", "evaluate.controls={}", "rollout.tasks_per_step=2", "rollout.group_size=3"),
    *("engine.max_concurrency=8", "rollout.max_retries=5", "train.parity_every=0"),
]


def start(folder: Path, *overrides: str) -> subprocess.Popen[bytes]:
    """A run as people start it."""
    folder.mkdir(exist_ok=True)
    return _train(folder / "log", str(RECIPE), *SMALL, f"run.output={folder}", *overrides)


def resume(run: Path) -> subprocess.Popen[bytes]:
    """The run in a folder of the folder that `start` was given, continued."""
    return _train(run.parent / "log", "--resume", str(run))


def _train(path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with path.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "turnwise", "train", *arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def finish(run: subprocess.Popen[bytes], folder: Path, timeout_s: float = 400.0) -> list[dict[str, Any]]:
    """Its metrics but for times, after it has ended well."""
    try:
        status = run.wait(timeout_s)
    finally:
        run.kill()
    assert status == 0, (folder / "log").read_text()[-3000:]
    [metrics] = folder.glob("*/metrics.jsonl")
    return read_rows(metrics.parent)


def audit(folder: Path) -> None:
    [config] = folder.glob("*/config.json")
    done = subprocess.run(
        [sys.executable, "-m", "turnwise", "audit", str(config.parent)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]


def find_processes(text: str) -> list[int]:
    """Of every process whose command line has the text."""
    return [pid for pid, (_, state, command) in read_processes().items() if text in command and state != "Z"]


def wait_until(condition: Any, what: str, timeout_s: float = 120.0) -> Any:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what}: not in {timeout_s:g} s")


def count_steps(folder: Path) -> int:
    return sum('"train"' in line for file in folder.glob("*/metrics.jsonl") for line in file.read_text().splitlines())


def network_of(pid: int) -> str:
    """The network namespace of a process; empty where it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""
