"""Measures slot programs as root and as a plain user, in turns, in separate processes: dropping privileges is final."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from turnwise_sandbox.kernel import syscalls
from turnwise_sandbox.levels import is_shared
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.types import Program

NOBODY = 65534


def main() -> None:
    """Run `python -m turnwise_sandbox.unprivileged ROUNDS COUNT`: prints both processor times and their ratio as
    JSON."""
    if sys.argv[1] == "serve":
        if sys.argv[3] == "unprivileged":
            syscalls.set_identity(NOBODY, NOBODY)
            syscalls.drop_privileges()
        asyncio.run(_serve(int(sys.argv[2])))
        return
    if os.geteuid() != 0:
        raise SystemExit("only root can compare itself with an unprivileged process")
    rounds, count = int(sys.argv[1]), sys.argv[2]
    kinds = ("root", "unprivileged")
    command = [find_shared_python(), "-m", "turnwise_sandbox.unprivileged", "serve", count]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "env": environment,
        "cwd": "/",
    }
    helpers = {kind: subprocess.Popen([*command, kind], **pipes) for kind in kinds}
    cpu_s: dict[str, list[float]] = {kind: [] for kind in kinds}
    levels = {}
    for _ in range(rounds):
        for kind, helper in helpers.items():
            assert helper.stdin is not None
            assert helper.stdout is not None
            helper.stdin.write("go\n")
            helper.stdin.flush()
            answer = json.loads(helper.stdout.readline())
            cpu_s[kind].append(answer["cpu_s"])
            levels[kind] = answer["level"]
    for helper in helpers.values():
        helper.communicate(timeout=30)
    medians = {kind: statistics.median(values) for kind, values in cpu_s.items()}
    sys.stdout.write(
        json.dumps(
            {
                **{f"{kind}_cpu_ms": round(1e3 * value, 4) for kind, value in medians.items()},
                "levels": levels,
                "ratio": round(medians["unprivileged"] / medians["root"], 3),
                "goal": 1.15,
            }
        )
    )


def find_shared_python() -> str:
    """An interpreter that every user may run: this one, or the system's if this one lies in a private folder."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(candidate) and is_shared(candidate):
            return candidate
    raise SystemExit(f"{sys.executable} is in a folder that other users cannot enter, and there is no /usr/bin/python3")


async def _serve(count: int) -> None:
    async with LocalSandbox(num_slots=1) as sandbox:
        program = Program(code="print(sum(range(100)))")
        await sandbox.run(program)
        while sys.stdin.readline():
            before_s = time.process_time() + sandbox.processor_seconds()
            for _ in range(count):
                await sandbox.run(program)
            cpu_s = (time.process_time() + sandbox.processor_seconds() - before_s) / count
            sys.stdout.write(json.dumps({"cpu_s": cpu_s, "level": (await sandbox.level()).name}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
