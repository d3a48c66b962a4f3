"""Compares the sandbox with `subprocess`, bubblewrap and a bare fork, in interleaved rounds, and with its goals.

The unit is processor time per execution, of the caller, the cells and the programs together. Other load on the machine
changes it far less than elapsed time, which is reported beside it. Everything but scaling is measured on one processor:
waking an idle second processor costs a virtual machine more than a fork."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise_sandbox.benchmark_ends import measure_ends
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.requests import is_installed
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Limits, Program

WORKLOADS = {
    "trivial": "print(sum(range(100)))",
    "typical": (
        "import re, json, random, collections, functools, itertools, math, datetime\n"
        "c = collections.Counter(re.findall(r'[a-z]+', 'the quick brown fox jumps over the lazy dog ' * 20))\n"
        "print(json.dumps(c.most_common(3)), math.comb(20, 10))"
    ),
    "numpy": (
        "import numpy as np\na = np.arange(100.0).reshape(10, 10) + np.eye(10) * 50\nprint(np.linalg.solve(a, "
        "np.ones(10)).sum())"
    ),
    "sympy": "import sympy as s\nx = s.symbols('x')\nprint(s.integrate(x**2, x))",
}
"""Code of each workload."""

OPTIONAL = ("pytest", "sympy")
"""Libraries that an installation may lack; measurements with a missing library are skipped."""
OPTIONAL_REMEDY = "not installed; pip install 'turnwise[math]'"

GOALS = {
    "slot_vs_subprocess": {"trivial": 5.0, "typical": 5.0, "numpy": 20.0, "sympy": 40.0},
    "strict_vs_subprocess": {"trivial": 3.5, "typical": 3.5, "numpy": 12.0, "sympy": 35.0},
}
"""Minimum ratio of `subprocess`'s processor time to the sandbox's."""

TRIVIAL_GOALS = {"slot_vs_bubblewrap": ("bubblewrap", "slot", 6.0), "isolation_overhead": ("slot", "not_isolated", 1.1)}
"""Name to dividend, divisor and goal for trivial work: bubblewrap takes at least 6 times the sandbox's processor time,
the sandbox at most 1.1 times that of no isolation."""

FILES_PER_SESSION = 12
"""Maximum number of the supervisor's descriptors per session."""

REPETITIONS = {"trivial": 40, "typical": 30, "numpy": 20, "sympy": 10}
"""Executions per round; `subprocess` and bubblewrap run a quarter of them."""


@dataclass(slots=True)
class Samples:
    """Executions of one runner."""

    cpu_s: list[float]
    """Processor seconds per execution, one value per round."""
    wall_s: list[float]
    """Elapsed seconds, one value per execution."""

    def to_json(self) -> dict[str, float]:
        """Medians over rounds and percentiles over executions, in milliseconds."""
        ordered = sorted(self.wall_s)
        return {
            "cpu_ms": round(1e3 * statistics.median(self.cpu_s), 4),
            "wall_p50_ms": round(1e3 * statistics.median(ordered), 4),
            "wall_p99_ms": round(1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 4),
        }


Runner = Callable[[str, int], Awaitable[tuple[float, list[float]]]]
"""Runs a workload a number of times; returns the processor seconds of all executions and the elapsed seconds of
each."""


async def run_benchmark(*, rounds: int, quick: bool) -> dict[str, Any]:
    """All measurements as one JSON object. Keeps this process and its children on one processor for most of them.

    `skipped` names what needs a library that is not installed, and how to install it."""
    scale = 0.25 if quick else 1.0
    load_before = round(os.getloadavg()[0], 2)
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        measured = await _measure_on_one(rounds, quick, scale)
    finally:
        os.sched_setaffinity(0, processors)
    return {
        "machine": {"cpus": len(processors), "kernel": platform.release(), "python": platform.python_version()},
        "load_before": load_before,
        "rounds": rounds,
        **measured,
        "ends": await measure_ends(2 if quick else 4 * rounds),
        "scaling": await _measure_scaling(100 if quick else 400, rounds),
    }


async def _measure_on_one(rounds: int, quick: bool, scale: float) -> dict[str, Any]:
    skipped = {library: OPTIONAL_REMEDY for library in OPTIONAL if not is_installed(library)}
    works = [work for work in WORKLOADS if work not in skipped]
    async with (
        LocalSandbox(num_slots=1) as slot,
        LocalSandbox(num_slots=1, mode="strict") as strict,
        LocalSandbox(num_slots=1, level="none", allow_unsafe=True) as none,
    ):
        runners: dict[str, Runner] = {
            "not_isolated": lambda work, count: run_sandbox(none, work, count),
            "subprocess": run_subprocess,
            "slot": lambda work, count: run_sandbox(slot, work, count),
            "strict": lambda work, count: run_sandbox(strict, work, count),
            "bare_fork": run_bare_fork,
        }
        if bubblewrap := shutil.which("bwrap"):
            runners["bubblewrap"] = lambda work, count: run_bubblewrap(bubblewrap, work, count)
        execution = await _measure(runners, works, rounds, scale)
        tail = await _measure_tail(slot, 100 if quick else 1000)
        sessions = await _measure_sessions(slot, rounds, 20 if quick else 200, 50 if quick else 1000)
        frameworks = [name for name in ("unittest", "pytest") if name not in skipped]
        tests = await _measure_tests(slot, frameworks, rounds, scale)
        level = await slot.level()
    return {
        "level": level.name,
        "execution": {
            work: {name: samples.to_json() for name, samples in by_name.items()} for work, by_name in execution.items()
        },
        "ratios": _ratios(execution),
        "tail": tail,
        "sessions": sessions,
        "tests": tests,
        "unprivileged": _measure_unprivileged(rounds, quick),
        "skipped": skipped if bubblewrap else {**skipped, "bubblewrap": "no bwrap on PATH"},
    }


async def _measure(
    runners: dict[str, Runner], works: Sequence[str], rounds: int, scale: float
) -> dict[str, dict[str, Samples]]:
    """Workload to runner to the executions of that runner."""
    samples: dict[str, dict[str, Samples]] = {work: {name: Samples([], []) for name in runners} for work in works}
    for work in works:
        for runner in runners.values():
            await runner(work, 1)  # load what is loaded only once
    for _ in range(rounds):
        for work in works:
            for name, runner in runners.items():
                share = 4 if name in ("subprocess", "bubblewrap") else 1
                count = max(2, int(REPETITIONS[work] * scale / share))
                cpu_s, wall_s = await runner(work, count)
                samples[work][name].cpu_s.append(cpu_s / count)
                samples[work][name].wall_s += wall_s
    return samples


async def _measure_tail(sandbox: LocalSandbox, count: int) -> dict[str, Any]:
    """Elapsed times of programs run one after the other. In turns with other runners, the first program of each turn
    would make up most of the last percent."""
    await run_sandbox(sandbox, "trivial", 5)
    _, walls = await run_sandbox(sandbox, "trivial", count)
    walls.sort()
    p50, p99 = walls[count // 2], walls[int(0.99 * count)]
    return {"p50_ms": round(1e3 * p50, 4), "p99_ms": round(1e3 * p99, 4), "ratio": round(p99 / p50, 2), "goal": 4.0}


def _ratios(execution: dict[str, dict[str, Samples]]) -> dict[str, Any]:
    """Median over rounds of each round's ratio: a disturbance affects both sides of a round's ratio."""

    def ratio(work: str, dividend: str, divisor: str) -> float:
        pairs = zip(execution[work][dividend].cpu_s, execution[work][divisor].cpu_s, strict=True)
        return statistics.median(above / below for above, below in pairs)

    ratios: dict[str, Any] = {}
    for name, goals in GOALS.items():
        runner = name.split("_")[0]
        ratios[name] = {
            work: {
                "ratio": round(ratio(work, "subprocess", runner), 2),
                "limit": round(ratio(work, "subprocess", "bare_fork"), 2),
                "goal": goal,
            }
            for work, goal in goals.items()
            if work in execution
        }
    for name, (runner, base, goal) in TRIVIAL_GOALS.items():
        if {runner, base} <= set(execution["trivial"]):
            ratios[name] = {"trivial": {"ratio": round(ratio("trivial", runner, base), 3), "goal": goal}}
    return ratios


# ------------------------------------------------------------------------------------------------ runners


async def run_subprocess(work: str, count: int) -> tuple[float, list[float]]:
    """Run `python -c CODE` and capture its output."""
    return _run_commands([sys.executable, "-c", WORKLOADS[work]], count)


async def run_bubblewrap(bubblewrap: str, work: str, count: int) -> tuple[float, list[float]]:
    """Run `bwrap --unshare-all python -c CODE` over the host's read-only root."""
    flags = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent"]
    flags.append("--as-pid-1")  # otherwise bubblewrap does not wait for its child, and the child's time is not counted
    return _run_commands([bubblewrap, *flags, sys.executable, "-c", WORKLOADS[work]], count)


def _run_commands(command: list[str], count: int) -> tuple[float, list[float]]:
    before = _processor_seconds()
    walls = []
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for _ in range(count):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment)
        walls.append(time.perf_counter() - started)
    return _processor_seconds() - before, walls


def _processor_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in usage)


async def run_sandbox(sandbox: LocalSandbox, work: str, count: int) -> tuple[float, list[float]]:
    """Run the same code as a `Program`."""
    limits = Limits(wall_s=30.0)
    before_s = time.process_time() + sandbox.processor_seconds()
    walls = []
    for _ in range(count):
        started = time.perf_counter()
        execution = await sandbox.run(Program(code=WORKLOADS[work]), limits)
        walls.append(time.perf_counter() - started)
        if not execution.ok:
            raise SandboxError(f"workload {work} failed: {execution.text()[-300:]}")
    return time.process_time() + sandbox.processor_seconds() - before_s, walls


async def run_bare_fork(work: str, count: int) -> tuple[float, list[float]]:
    """Fork, run the code and exit, in an interpreter with the same libraries and without isolation: the lower bound."""
    profile = work if work in ("numpy", "sympy") else "std"
    command = [sys.executable, "-I", "-m", "turnwise_sandbox.guest.bare_fork", profile, str(count), WORKLOADS[work]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, env=environment)
    times = json.loads(done.stdout)
    return times["cpu_s"], times["wall_s"]


# ------------------------------------------------------------------------------------------------ sessions, tests


async def _measure_sessions(sandbox: LocalSandbox, rounds: int, count: int, num_live: int) -> dict[str, Any]:
    created, cells, shell = [], [], []
    for _ in range(rounds):
        started = time.perf_counter()
        session = await sandbox.open(profile="numpy")
        created.append(time.perf_counter() - started)
        await session.run("x = 0")
        for _ in range(count):
            started = time.perf_counter()
            await session.run("x += 1")
            cells.append(time.perf_counter() - started)
        await session.close()
        bash = await sandbox.open("bash")
        await bash.run("x=0")
        for _ in range(count):
            started = time.perf_counter()
            await bash.run("x=$((x + 1))")
            shell.append(time.perf_counter() - started)
        await bash.close()
    cells.sort()
    return {
        "create_p50_ms": round(1e3 * statistics.median(created), 3),
        "cell_p50_ms": round(1e3 * statistics.median(cells), 4),
        "cell_p99_ms": round(1e3 * cells[int(0.99 * len(cells))], 4),
        "bash_p50_ms": round(1e3 * statistics.median(shell), 4),
        **await _measure_memory(sandbox, num_live),
        "goals": {
            "create_ms": 10,
            "cell_p50_ms": 0.25,
            "cell_p99_ms": 5,
            "bash_p50_ms": 0.1,
            "memory_mb": 2.5,
            "live_mb_each": 3.0,
        },
    }


async def _measure_memory(sandbox: LocalSandbox, num_live: int) -> dict[str, Any]:
    """Memory of sessions that are alive at the same time and have used numpy: the median charged to their control
    groups, and the machine's loss of available memory per session, which is only right on an idle machine."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files[1] != resource.RLIM_INFINITY:
        num_live = min(num_live, files[1] // FILES_PER_SESSION)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    before = _available_bytes()
    sessions = [await sandbox.open(profile="numpy") for _ in range(num_live)]
    for session in sessions:
        await session.run("import numpy as np\na = np.ones(1000)\na.sum()")
    charged = [num_bytes for session in sessions if (num_bytes := session.memory_bytes()) is not None]
    taken = before - _available_bytes()
    for session in sessions:
        await session.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, files)
    return {
        "num_live": num_live,
        "memory_mb": round(statistics.median(charged) / 1e6, 3) if charged else None,
        "live_mb_each": round(taken / num_live / 1e6, 3),
    }


def _available_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(row.split()[1]) * 1024 for row in file if row.startswith("MemAvailable:"))


_UNITTEST = (
    "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1 + 1, "
    "2)\nunittest.main()\n"
)
_PYTEST = "def test_a():\n    assert 1 + 1 == 2\n"
_RUN_PYTEST = "import pytest, sys\nsys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_a.py']))"


async def _measure_tests(sandbox: LocalSandbox, frameworks: Sequence[str], rounds: int, scale: float) -> dict[str, Any]:
    """One small test run by each framework, in a slot and by `subprocess`."""
    measured: dict[str, Any] = {}
    count = max(2, int(8 * scale))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "test_a.py")
        path.write_text(_PYTEST)
        commands = {
            "unittest": [sys.executable, "-c", _UNITTEST],
            "pytest": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        }
        programs = {
            "unittest": Program(code=_UNITTEST),
            "pytest": Program(code=_RUN_PYTEST, files={"test_a.py": _PYTEST.encode()}),
        }
        for name in frameworks:
            theirs, ours = [], []
            await sandbox.run(programs[name], Limits(wall_s=30))  # load what is loaded only once
            for _ in range(rounds):
                theirs.append(_run_commands(commands[name], max(1, count // 4))[0] / max(1, count // 4))
                before_s = time.process_time() + sandbox.processor_seconds()
                for _ in range(count):
                    execution = await sandbox.run(programs[name], Limits(wall_s=30))
                    if not execution.ok:
                        raise SandboxError(f"{name} failed: {execution.text()[-300:]}")
                ours.append((time.process_time() + sandbox.processor_seconds() - before_s) / count)
            measured[name] = {
                "subprocess_cpu_ms": round(1e3 * statistics.median(theirs), 3),
                "slot_cpu_ms": round(1e3 * statistics.median(ours), 3),
                "ratio": round(statistics.median(theirs) / statistics.median(ours), 2),
                "goal": 4.0,
            }
    return measured


async def _measure_scaling(count: int, rounds: int) -> dict[str, Any]:
    """Programs per second with one slot and with two, in turns."""
    if len(os.sched_getaffinity(0)) < 2:
        return {"skipped": "this process may use one processor only"}
    rates: dict[int, list[float]] = {1: [], 2: []}
    async with LocalSandbox(num_slots=1) as one, LocalSandbox(num_slots=2) as two:
        for _ in range(rounds):
            for slots, sandbox in ((1, one), (2, two)):
                started = time.perf_counter()
                await asyncio.gather(
                    *(sandbox.run(Program(code=WORKLOADS["typical"]), Limits(wall_s=30)) for _ in range(count))
                )
                rates[slots].append(count / (time.perf_counter() - started))
    return {
        "one_slot_per_s": round(statistics.median(rates[1]), 1),
        "two_slots_per_s": round(statistics.median(rates[2]), 1),
        "ratio": round(statistics.median(b / a for a, b in zip(rates[1], rates[2], strict=True)), 2),
        "goal": 1.7,
    }


def _measure_unprivileged(rounds: int, quick: bool) -> dict[str, Any]:
    """Compare slot programs of a process without capabilities with those of this user, in turns."""
    command = [sys.executable, "-m", "turnwise_sandbox.unprivileged", str(rounds), str(20 if quick else 100)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return {
            "skipped": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
        }
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured
