"""Compares versions of the sandbox: `python benchmarks/sandbox_versions.py numpy old=/path/to/clone/src new=src`.

Each version has its own process; all run on one processor and do the same work in every round. Prints the processor
milliseconds per execution and the median ratio to the first version."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
from pathlib import Path


async def serve(work: str, mode: str, count: int) -> None:
    """Run one version: for each line of standard input, run `count` executions and print the milliseconds of one."""
    from turnwise_sandbox.benchmark import run_sandbox
    from turnwise_sandbox.supervisor import LocalSandbox

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    async with LocalSandbox(num_slots=1, mode=mode) as sandbox:  # type: ignore[arg-type]
        await run_sandbox(sandbox, work, 5)
        print("ready", flush=True)
        for _ in sys.stdin:
            cpu_s, _ = await run_sandbox(sandbox, work, count)
            print(1e3 * cpu_s / count, flush=True)


def compare(versions: dict[str, Path], work: str, mode: str, count: int, rounds: int) -> dict[str, list[float]]:
    """Processor milliseconds per execution, of each version in each round."""
    cpu_ms: dict[str, list[float]] = {name: [] for name in versions}
    with contextlib.ExitStack() as stack:
        processes = {}
        for name, source in versions.items():
            options = ["--mode", mode, "--count", str(count), "--serve"]
            command = [sys.executable, __file__, work, f"{name}={source}", *options]
            environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            processes[name] = stack.enter_context(process)
            _answer(process)
        for _ in range(rounds):
            for name, process in processes.items():
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                cpu_ms[name].append(float(_answer(process)))
    return cpu_ms


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a version ended: {process.args!r}")
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["trivial", "typical", "numpy", "sympy"])
    parser.add_argument(
        "versions", nargs="+", metavar="NAME=SRC", help="a version's name and the folder of its `turnwise_sandbox`"
    )
    parser.add_argument("--mode", choices=["slot", "strict"], default="slot")
    parser.add_argument("--count", type=int, default=40, help="executions per round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.work, arguments.mode, arguments.count))
        return
    versions = {name: Path(source) for name, _, source in (item.partition("=") for item in arguments.versions)}
    cpu_ms = compare(versions, arguments.work, arguments.mode, arguments.count, arguments.rounds)
    first = next(iter(cpu_ms.values()))
    for name, values in cpu_ms.items():
        ratio = statistics.median(value / base for value, base in zip(values, first, strict=True))
        print(f"{name:<12} {statistics.median(values):8.3f} ms   least {min(values):8.3f}   {ratio:.3f} of the first")


if __name__ == "__main__":
    main()
