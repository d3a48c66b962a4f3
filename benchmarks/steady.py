"""Run the tests several times beside busy processes and print how long each run took, the load and what failed.

    python benchmarks/steady.py --runs 10 --busy 2

Each busy process uses one core as far as the tests leave it. The load is the mean number of processes that wanted
a core during the run (about 3 without anything beside it). Exits with 1 if any run failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = [sys.executable, "-m", "pytest", "-n", "3", "-m", "not slow", "-r", "fE"]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` processes computing until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_tests(arguments: Sequence[str]) -> tuple[float, float, list[str]]:
    """Run the tests once.

    Returns the seconds, the mean of the load averages seen, and what failed and why, or how pytest ended.
    """
    start, loads = time.monotonic(), []
    with subprocess.Popen(
        [*TESTS, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        while True:
            try:
                printed, _ = process.communicate(timeout=15)
                break
            except subprocess.TimeoutExpired:
                loads.append(os.getloadavg()[0])
    failed = re.findall(r"^(?:FAILED|ERROR) (.+)", printed, re.MULTILINE)
    if process.returncode and not failed:
        failed = [f"pytest ended with {process.returncode}: {printed[-1000:]}"]
    return time.monotonic() - start, sum(loads) / max(len(loads), 1), failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("arguments", nargs="*", help="what pytest is given besides")
    options = parser.parse_args()
    num_failed = 0
    with busy(options.busy):
        for number in range(1, options.runs + 1):
            seconds, load, failed = run_tests(options.arguments)
            num_failed += bool(failed)
            print(f"run {number:>2}: {seconds:6.0f} s, load {load:.1f}, {'; '.join(failed) or 'green'}", flush=True)
    return int(num_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
