"""Measures trees of layers: the cost of a private copy of a repository, its memory, and whether anything is left over.

    python benchmarks/trees.py                      # all of it
    python benchmarks/trees.py --only opens --opens 100000      # Ctrl-C: the opens so far are measured

Processor milliseconds (user and system) of caller, zygote and cell, or of the commands; the ways take turns in every
round, and the median over rounds is printed. Later work of the kernel, such as freeing mounts, is not counted."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from turnwise_sandbox import Limits, LocalSandbox, Program, Tree
from turnwise_sandbox.kernel.owner import own_tag

FILE_BYTES = 13_000
"""Bytes per file: about the mean of jinja2 and networkx."""
LINE = b"value = 1  # forty characters of a line\n"
BUG = {"package0/module0.py": b"raise ValueError('planted')\n"}


def make_repository(folder: Path, num_files: int) -> Path:
    """A folder with that many modules in packages of 50, under git if the machine has it."""
    content = LINE * (FILE_BYTES // len(LINE))
    for number in range(num_files):
        place = folder / f"package{number // 50}" / f"module{number % 50}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    if shutil.which("git"):
        git = ["git", "-C", str(folder), "-c", "user.name=b", "-c", "user.email=b@b"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
            subprocess.run([*git, *command], check=True)
    return folder


def command_ms(*command: str) -> float:
    """Processor milliseconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


async def sandbox_ms(sandbox: LocalSandbox, work: Callable[[], Awaitable[object]], count: int = 5) -> float:
    """Processor milliseconds of one call of `work`, from `count` calls."""
    before = time.process_time() + sandbox.processor_seconds()
    for _ in range(count):
        await work()
    return 1e3 * (time.process_time() + sandbox.processor_seconds() - before) / count


async def open_and_close(sandbox: LocalSandbox, tree: Tree | None) -> None:
    await (await sandbox.open(tree=tree)).close()


async def measure_ways(repository: Path, scratch: Path, rounds: int) -> dict[str, float]:
    """Way to median processor milliseconds."""
    tree = Tree(layers=(repository, BUG))
    spent: dict[str, list[float]] = {}
    async with LocalSandbox(num_slots=1) as sandbox, LocalSandbox(num_slots=1, level="process") as lower:
        ways: dict[str, Callable[[], Awaitable[float]]] = {
            "session without a tree": lambda: sandbox_ms(sandbox, lambda: open_and_close(sandbox, None)),
            "session in a tree": lambda: sandbox_ms(sandbox, lambda: open_and_close(sandbox, tree)),
            "session at level process, without a tree": lambda: sandbox_ms(lower, lambda: open_and_close(lower, None)),
            "session at level process, in a tree (copied)": lambda: sandbox_ms(
                lower, lambda: open_and_close(lower, tree), 1
            ),
            "program without a tree": lambda: sandbox_ms(sandbox, lambda: sandbox.run(Program(code=""))),
            "program in a tree, with its changes": lambda: sandbox_ms(
                sandbox, lambda: sandbox.run(Program(code="open('new', 'w').write('x')", tree=tree))
            ),
        }
        for way in ways.values():
            await way()
        for number in range(rounds):
            for name, way in ways.items():
                spent.setdefault(name, []).append(await way())
            copy = scratch / f"copy{number}"
            spent.setdefault("cp -r", []).append(command_ms("cp", "-r", str(repository), str(copy)))
            shutil.rmtree(copy)
            if shutil.which("git"):
                add = ("git", "-C", str(repository), "worktree", "add", "--detach", str(copy))
                spent.setdefault("git worktree add", []).append(command_ms(*add))
                command_ms("git", "-C", str(repository), "worktree", "remove", "--force", str(copy))
    return {name: statistics.median(values) for name, values in spent.items()}


async def measure_memory(repository: Path, num_sessions: int) -> str:
    """Available memory that open sessions use, each with one edited file."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    tree = Tree(layers=(repository, BUG))
    async with LocalSandbox(num_slots=1) as sandbox:
        await open_and_close(sandbox, tree)
        before = available_bytes()
        sessions = []
        for _ in range(num_sessions):
            sessions.append(await sandbox.open(tree=tree, limits=Limits(wall_s=60)))
            await sessions[-1].run("open('package1/module0.py', 'a').write('edited')")
        taken = before - available_bytes()
        changes = [await session.changes() for session in sessions]
        assert all(list(change) == ["package1/module0.py"] for change in changes)
        for session in sessions:
            await session.close()
    return f"{num_sessions} open sessions take {taken / (1 << 30):.2f} GiB of available memory"


def available_bytes() -> int:
    """The machine's available memory."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(row.split()[1]) * 1024 for row in file if row.startswith("MemAvailable:"))


def count_left() -> dict[str, int]:
    """Counts of what this process has on the machine: children, descriptors, mounts and folders of sandboxes."""
    return {
        "children": len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "folders": len(list(Path(tempfile.gettempdir()).glob(f"turnwise-sandbox-{own_tag()}-*"))),
    }


async def measure_opens(repository: Path, num_opens: int) -> tuple[str, bool]:
    """Open and close sessions, each with its own layer and edit. Returns what is left, and whether anything is. An
    interrupt ends the opening, not the measurement."""
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    before = count_left()
    started, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    waits_ms: list[float] = []
    async with LocalSandbox(num_slots=1) as sandbox:
        for number in range(num_opens):
            tree = Tree(layers=(repository, {**BUG, "number": str(number).encode()}))
            asked = time.perf_counter()
            session = await sandbox.open("bash" if number % 50 == 0 else "python", tree=tree)
            waits_ms.append(1e3 * (time.perf_counter() - asked))
            if number % 100 == 0:
                await session.write_file("edited", b"x")
                assert await session.changes() == {"edited": b"x"}
            await session.close()
            if number == num_opens // 10:
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if (number + 1) % 10_000 == 0:
                print(f"{number + 1} opened and closed", file=sys.stderr, flush=True)
            if interrupted.is_set():
                break
        cpu_ms = 1e3 * (time.process_time() - started + sandbox.processor_seconds()) / len(waits_ms)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    after = count_left()
    left = {name: after[name] - before[name] for name in after}
    waits_ms.sort()
    half, most = (waits_ms[int(share * (len(waits_ms) - 1))] for share in (0.5, 0.99))
    told = (
        f"{len(waits_ms)} of {num_opens} sessions opened and closed, {cpu_ms:.2f} ms of the processor each; an open "
        f"takes {half:.1f} ms of real time at the median, {most:.1f} ms at the 99th percentile; left: {left}; the "
        f"supervisor grew by {grown / 1024:.1f} MiB after the first tenth"
    )
    return told, any(left.values())


async def main() -> int:
    """Measure; the exit status is 1 if closed sessions left anything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of the table")
    parser.add_argument("--sessions", type=int, default=1000, help="sessions open at once")
    parser.add_argument("--opens", type=int, default=2000, help="sessions opened and closed")
    parser.add_argument("--only", choices=("ways", "memory", "opens"), help="one of the three measurements")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = make_repository(Path(folder) / "small", 100)
        large = make_repository(Path(folder) / "large", 900)
        if arguments.only in (None, "ways"):
            columns = [await measure_ways(each, Path(folder), arguments.rounds) for each in (small, large)]
            print("| processor ms | 100 files | 900 files |\n|---|---|---|")
            for name in columns[0]:
                print(f"| {name} | {columns[0][name]:.1f} | {columns[1][name]:.1f} |", flush=True)
        if arguments.only in (None, "memory"):
            print(await measure_memory(large, arguments.sessions), flush=True)
        if arguments.only in (None, "opens"):
            told, is_left = await measure_opens(large, arguments.opens)
            print(told, flush=True)
            return int(is_left)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
