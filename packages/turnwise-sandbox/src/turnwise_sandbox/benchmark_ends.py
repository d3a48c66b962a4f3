"""Measures how soon programs end at their limits, and how soon all processes of a sandbox end when one is killed.

The measurements are elapsed times, which need an idle machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Limits, Program

WALL_S = 0.2
LATE_GOAL_MS = 50.0
OUTPUT_GOAL_MS = 100.0
GONE_GOAL_MS = 500.0
DEADLINE_S = 30.0

AT_THE_LIMIT = {
    "loops": ("while True: pass", "wall"),
    "sleeps": ("import time\ntime.sleep(60)", "wall"),
    "ignores every signal": (
        "import signal\nfor n in {*range(1, 65)} - {9, 19, 32, 33}: signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        "wall",
    ),
    "stops itself": ("import os\nos.kill(os.getpid(), 19)", "wall"),
    "leaves a daemon": ("import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(60)", "wall"),
}
"""Code that a program runs until its time is up, and the limit that its execution must report."""

GIGABYTE = "import os\nx = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, x)"


async def measure_ends(rounds: int) -> dict[str, Any]:
    """The longest times of `rounds` measurements, in milliseconds, with their goals."""
    async with LocalSandbox(num_slots=1) as sandbox:
        late = dict.fromkeys(AT_THE_LIMIT, 0.0)
        output_ms = 0.0
        for _ in range(rounds):
            for name, (code, limit) in AT_THE_LIMIT.items():
                elapsed_s = await _run(sandbox, code, limit, Limits(wall_s=WALL_S))
                late[name] = max(late[name], 1e3 * (elapsed_s - WALL_S))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            output_ms = max(output_ms, 1e3 * await _run(sandbox, GIGABYTE, "output", Limits(wall_s=DEADLINE_S)))
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {
        "late_ms": {name: round(value, 2) for name, value in late.items()},
        "late_goal_ms": LATE_GOAL_MS,
        "gigabyte_of_output_ms": round(output_ms, 2),
        "gigabyte_of_output_goal_ms": OUTPUT_GOAL_MS,
        "gigabyte_of_output_grew_bytes": grown,
        "gone_ms": {role: round(value, 2) for role, value in measure_kills(rounds).items()},
        "gone_goal_ms": GONE_GOAL_MS,
    }


async def _run(sandbox: LocalSandbox, code: str, limit: str, limits: Limits) -> float:
    started = time.perf_counter()
    execution = await sandbox.run(Program(code=code), limits)
    elapsed_s = time.perf_counter() - started
    if execution.limit != limit:
        raise SandboxError(
            f"a program that should hit the {limit} limit ended with {execution.limit}: {execution.text()[-300:]}"
        )
    return elapsed_s


# ------------------------------------------------------------------------------------------------ kills


@dataclass(frozen=True, slots=True)
class _Tree:
    """Pids of the living processes below a supervisor, by depth."""

    launchers: list[int]
    zygotes: list[int]
    cells: list[int]
    others: list[int]

    @property
    def all(self) -> list[int]:
        return [*self.launchers, *self.zygotes, *self.cells, *self.others]


def measure_kills(rounds: int) -> dict[str, float]:
    """The longest time in milliseconds, per role, from killing a process to the end of all that depend on it.

    The supervisor has ten sessions with a child process each, one of them with a fork, and a running program.
    """
    worst = dict.fromkeys(("supervisor", "launcher", "zygote", "cell"), 0.0)
    draw = random.Random(0)
    for _ in range(rounds):
        for role in worst:
            command = [sys.executable, "-m", "turnwise_sandbox.benchmark_ends"]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
                assert holder.stdout is not None
                if holder.stdout.readline() != b"ready\n":
                    raise SandboxError("a sandbox that was about to be killed did not start")
                tree = _read_tree(holder.pid)
                killed, dependent = _pick(role, holder.pid, tree, draw)
                started = time.perf_counter()
                os.kill(killed, signal.SIGKILL)
                while any(_lives(pid) for pid in dependent):
                    if time.perf_counter() - started > DEADLINE_S:
                        raise SandboxError(
                            f"processes outlived a killed {role}: {[pid for pid in dependent if _lives(pid)]}"
                        )
                    time.sleep(0.001)
                worst[role] = max(worst[role], 1e3 * (time.perf_counter() - started))
                holder.kill()
    return worst


def _pick(role: str, supervisor: int, tree: _Tree, draw: random.Random) -> tuple[int, list[int]]:
    """A process to kill, and the processes that must end with it."""
    if role == "supervisor":
        return supervisor, tree.all
    if role == "launcher":
        return tree.launchers[0], tree.all
    if role == "zygote":
        return tree.zygotes[0], [*tree.zygotes, *tree.cells, *tree.others]
    cell = draw.choice(tree.cells)
    return cell, [cell, *_below({cell}, _read_parents(), generations=8)]


def _read_parents() -> dict[int, int]:
    """Pid to parent's pid, for all living processes."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                parents[int(name)] = int(fields[1])
    return parents


def _below(roots: set[int], parents: dict[int, int], *, generations: int = 1) -> list[int]:
    """Pids of the descendants of `roots`, over a number of generations."""
    descendants: list[int] = []
    for _ in range(generations):
        roots = {pid for pid, parent in parents.items() if parent in roots}
        descendants += roots
    return descendants


def _read_tree(supervisor: int) -> _Tree:
    parents = _read_parents()
    launchers = _below({supervisor}, parents)
    zygotes = _below(set(launchers), parents)
    cells = _below(set(zygotes), parents)
    return _Tree(launchers, zygotes, cells, _below(set(cells), parents, generations=8))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


async def _hold() -> None:
    """Run the supervisor that `measure_kills` kills."""
    async with LocalSandbox(num_slots=1) as sandbox:
        sessions = [await sandbox.open() for _ in range(10)]
        for session in sessions:
            await session.run("import subprocess\nchild = subprocess.Popen(['sleep', '60'])")
        await sessions[0].fork()
        program = asyncio.create_task(sandbox.run(Program(code="import time\ntime.sleep(60)"), Limits(wall_s=60)))
        await asyncio.sleep(0.1)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await program


if __name__ == "__main__":
    asyncio.run(_hold())
