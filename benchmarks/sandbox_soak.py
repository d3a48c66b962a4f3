"""Runs many mixed executions and reports what they leave: `python benchmarks/sandbox_soak.py [--executions 100000]`
prints JSON.

It counts, before and after, the processes, descriptors and control groups of this process, the mounts of this machine,
temporary files, and the resident memory of supervisor, zygotes and idle cells: the mean of each kind, and of the
supervisor the highest of five readings, each after the C library has returned free memory. Counts may grow by idle
cells only, memory by 5%. The exit status is 1 if they grow by more."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Limits, Program

LIMITS = Limits(wall_s=10.0, memory_bytes=256 << 20, disk_bytes=8 << 20, num_files=512, num_pids=32)
SHORT = Limits(wall_s=0.05, memory_bytes=256 << 20, disk_bytes=8 << 20, num_files=512, num_pids=32)

PROGRAMS: list[tuple[str, str, Limits, int]] = [
    # name, code, limits, weight
    ("trivial", "print(sum(range(100)))", LIMITS, 40),
    (
        "typical",
        "import re, json, collections\nprint(json.dumps(collections.Counter(re.findall('[a-z]', 'abc' * 50))))",
        LIMITS,
        20,
    ),
    ("numpy", "import numpy as np\nprint(np.linalg.solve(np.eye(9) * 3, np.ones(9)).sum())", LIMITS, 10),
    ("error", "def f(n): return 1 / n\nf(0)", LIMITS, 8),
    ("syntax", "def (", LIMITS, 2),
    ("exit", "import sys\nsys.exit(3)", LIMITS, 2),
    ("large output", "print('x' * 300_000)", LIMITS, 3),
    ("too much output", "while True: print('x' * 4096)", LIMITS, 1),
    (
        "files",
        "import os\nfor i in range(50): open(str(i), 'w').write('x')\nos.mkdir('d')\nopen('d/e', "
        "'w').close()\nos.chmod('d', 0)",
        LIMITS,
        3,
    ),
    ("disk", "while True: open('f', 'ab').write(bytes(1 << 20))", LIMITS, 1),
    ("renamed", "import os\nos.rename('../work', '../gone')", LIMITS, 1),
    (
        "daemon",
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(60)\n  os._exit(0)",
        LIMITS,
        3,
    ),
    (
        "threads",
        "import threading, time\nfor _ in range(5): threading.Thread(target=time.sleep, args=(0.001,)).start()",
        LIMITS,
        2,
    ),
    ("child", "import subprocess\nprint(subprocess.run(['echo', 'x'], capture_output=True).stdout)", LIMITS, 2),
    ("segfault", "import ctypes\nctypes.string_at(0)", LIMITS, 1),
    ("killed", "import os\nos.kill(os.getpid(), 9)", LIMITS, 1),
    ("endless", "while True: pass", SHORT, 1),
    ("stopped", "import os\nos.kill(os.getpid(), 19)", SHORT, 1),
    ("memory", "x = []\nwhile True: x.append(bytearray(1 << 22))", LIMITS, 1),
    ("processes", "import os, signal\nwhile True:\n  if os.fork() == 0: signal.pause()", LIMITS, 1),
    ("cancelled", "import time\ntime.sleep(60)", LIMITS, 1),
    ("session", "", LIMITS, 2),
    ("branch", "", LIMITS, 1),
    ("shell", "", LIMITS, 1),
    ("cell killed", "", LIMITS, 1),
]


async def run_soak(num_executions: int, *, warm_up: int = 2000, seed: int = 0, num_slots: int = 2) -> dict[str, Any]:
    """Run the programs in a random order and compare the counts before and after. `warm_up` executions come first,
    after which every pool has its final size."""
    async with LocalSandbox(num_slots=num_slots) as sandbox:
        level = (await sandbox.level()).name
        for kind in PROGRAMS:
            await _execute(sandbox, *kind[:3])
        rss_before = []
        for fifth in range(5):
            await _run_mix(sandbox, warm_up // 5, seed - 1 - fifth, num_slots)
            rss_before.append(_trimmed_bytes())
        before, started = _count(), time.monotonic()
        done: Counter[str] = Counter()
        rss_during, rss_untrimmed = [], []
        for tenth in range(10):
            count = num_executions * (tenth + 1) // 10 - num_executions * tenth // 10
            done += await _run_mix(sandbox, count, seed + 2 + tenth, num_slots)
            rss_untrimmed.append(_resident_bytes(os.getpid()))
            rss_during.append(_trimmed_bytes())
        elapsed_s, after = time.monotonic() - started, _count()
    closed = _count()
    # More cells may be idle than before, at most two per slot; each has a process, up to two groups (one per hierarchy)
    # and ten descriptors.
    room = {
        "mounts": 0,
        "temporary_files": 0,
        "processes": 2 * num_slots,
        "groups": 4 * num_slots,
        "descriptors": 20 * num_slots,
    }
    leaks = {name: [before[name], after[name]] for name, most in room.items() if after[name] > before[name] + most}
    leaks |= {f"{name}_after_close": closed[name] for name in ("processes", "groups") if closed[name]}
    growth = {
        role: round(after["rss_bytes"][role] / before["rss_bytes"][role] - 1, 4)
        for role in before["rss_bytes"]
        if before["rss_bytes"][role] and role in after["rss_bytes"]
    }
    # A single reading depends on what is running, so compare the highest of five before with the highest of the last
    # five.
    growth["supervisor"] = round(max(rss_during[5:]) / max(rss_before) - 1, 4)
    return {
        "level": level,
        "executions": sum(done.values()),
        "by_kind": dict(sorted(done.items())),
        "executions_per_s": round(sum(done.values()) / elapsed_s, 1),
        "supervisor_rss_bytes_before": rss_before,
        "supervisor_rss_bytes_after_each_tenth": rss_during,
        "supervisor_rss_bytes_before_trimming": rss_untrimmed,
        "before": before,
        "after": after,
        "leaks": leaks,
        "memory_growth": growth,
        "ok": not leaks and max(growth.values()) <= 0.05,
    }


async def _run_mix(sandbox: LocalSandbox, num_executions: int, seed: int, num_workers: int) -> Counter[str]:
    draw, weights = random.Random(seed), [weight for *_, weight in PROGRAMS]
    # Drawn one by one: a list of all programs would add to the memory that is measured.
    waiting = (draw.choices(PROGRAMS, weights)[0] for _ in range(num_executions))
    done: Counter[str] = Counter()

    async def work() -> None:
        for name, code, limits, _ in waiting:
            await _execute(sandbox, name, code, limits)
            done[name] += 1

    await asyncio.gather(*(work() for _ in range(num_workers)))
    return done


async def _execute(sandbox: LocalSandbox, name: str, code: str, limits: Limits) -> None:
    if name in ("session", "branch", "shell"):
        session = await sandbox.open("bash" if name == "shell" else "python", limits=limits)
        await session.run("x=1")
        if name == "branch":
            branch = await session.fork()
            await branch.run("x = 2\nopen('f', 'w').close()")
            await branch.close()
        await session.close()
        return
    if name == "cell killed":
        session = await sandbox.open(limits=limits)
        session.cell.kill()
        await session.close()
        return
    task = asyncio.ensure_future(sandbox.run(Program(code=code), limits))
    if name == "cancelled":
        await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return
    execution = await task
    if name in ("trivial", "typical", "numpy") and not execution.ok:
        raise SandboxError(f"{name} failed: {execution}")


def _count() -> dict[str, Any]:
    processes: dict[int, tuple[int, str]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{entry}/stat").read_text().rsplit(") ", 1)[1].split()[1])
            processes[int(entry)] = parent, Path(f"/proc/{entry}/cmdline").read_text()
        except OSError:
            continue
    below: dict[int, int] = {os.getpid(): 0}
    for _ in range(12):  # generations
        below |= {
            pid: below[parent] + 1 for pid, (parent, _) in processes.items() if parent in below and pid not in below
        }
    roles = {2: "zygote", 3: "cells"}
    memory: dict[str, list[int]] = {"supervisor": [_trimmed_bytes()]}
    for pid, depth in below.items():
        if depth in roles:
            profile = next((name for name in ("std", "numpy") if f'"profile": "{name}"' in processes[pid][1]), "other")
            memory.setdefault(f"{roles[depth]} {profile}", []).append(_resident_bytes(pid))
    prefixes = ("turnwise-", "tmp")
    return {
        "processes": len(below) - 1,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "groups": sum(1 for _ in Path("/sys/fs/cgroup").glob(f"**/turnwise-{os.getpid()}-*"))
        if os.path.isdir("/sys/fs/cgroup")
        else 0,
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "temporary_files": sum(
            1 for path in Path("/tmp").iterdir() if path.name.startswith(prefixes) and str(os.getpid()) in path.name
        ),
        "rss_bytes": {role: round(sum(values) / len(values)) for role, values in memory.items()},
    }


def _trimmed_bytes() -> int:
    """Resident memory of this process after its allocator returned free memory, of which it may otherwise keep two
    megabytes after a large output."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    return _resident_bytes(os.getpid())


def _resident_bytes(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("Rss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--warm-up", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slots", type=int, default=2)
    arguments = parser.parse_args()
    report = asyncio.run(
        run_soak(arguments.executions, warm_up=arguments.warm_up, seed=arguments.seed, num_slots=arguments.slots)
    )
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    raise SystemExit(0 if report["ok"] else 1)


if __name__ == "__main__":
    main()
