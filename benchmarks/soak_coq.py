"""Prove thousands of theorems in the real Coq, while coqtops are killed, and see what is left of it.

    python benchmarks/soak_coq.py [5000]

Fails if a script is not a proof, a process or file is left, or the memory of coqtop or of this process grows.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from turnwise_worlds.coq.kinds import KINDS
from turnwise_worlds.coq.prover import CoqProver
from turnwise_worlds.coq.theorem import CoqTheorem
from turnwise_worlds.coq.words import write_sentence
from turnwise_worlds.programs import COQTOP

KILL_EVERY = 500
"""Theorems between two kills."""
VERIFY_EVERY = 10
"""One proof in so many is verified by coqc and coqchk."""
MOST_COQTOP_MIB = 400.0
MOST_GROWTH_MIB = 64.0
"""Growth of this process's memory after its first tenth, at most."""


def list_coqtops() -> list[int]:
    """Return the coqtop processes below this one."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                names[int(folder.name)] = (folder / "cmdline").read_bytes().split(b"\0")[0]
            except OSError:
                continue

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return [pid for pid, name in names.items() if name.endswith(b"coqtop") and is_ours(pid)]


def read_mib(pid: int) -> float:
    """Return the memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def list_files() -> set[str]:
    """Return what lies where this machine keeps files for a while."""
    return {str(path) for folder in (tempfile.gettempdir(), "/dev/shm") for path in Path(folder).iterdir()}


def prove(prover: CoqProver, given: CoqTheorem) -> tuple[str, ...]:
    """Return the sentences of a theorem's script. Raises TacticRefused where it is no proof."""
    state = prover.start(given.theorem)
    for tactic in given.script:
        state = prover.apply(state, write_sentence(tactic, state.goals[0], given.names))
    assert not state.goals, f"{given.theorem.statement}: {state.goals}"
    return state.script


def main() -> None:
    """Print a line of figures for every tenth, and exit with 1 if something is left."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    kinds, before = list(KINDS), list_files()
    prover = CoqProver(COQTOP.find(), num_processes=2)
    largest, first, num_verified, started = 0.0, 0.0, 0, time.monotonic()
    for number in range(total):
        if number % KILL_EVERY == KILL_EVERY - 1:
            os.kill(list_coqtops()[0], signal.SIGKILL)
        given = KINDS[kinds[number % len(kinds)]](Random(number))
        script = prove(prover, given)
        if number % VERIFY_EVERY == 0:
            verdict = prover.verify(given.theorem, script)
            assert verdict.accepted, f"{given.theorem.statement}: {verdict.reason}"
            num_verified += 1
        if (number + 1) % max(1, total // 10) == 0:
            coqtop, own = max(map(read_mib, list_coqtops()), default=0.0), read_mib(os.getpid())
            largest, first = max(largest, coqtop), first or own
            seconds = time.monotonic() - started
            print(f"{number + 1} theorems, {num_verified} verified, {seconds:.0f} s: coqtop {coqtop:.0f} MiB, ", end="")
            print(f"this process {own:.0f} MiB, {prover.num_started} coqtops started", flush=True)
    prover.close()
    time.sleep(1.0)
    problems = [
        *(f"coqtop {pid} is left" for pid in list_coqtops()),
        *(f"{path} is left" for path in list_files() - before if "coq" in path or "turnwise" in path),
        *([f"a coqtop took {largest:.0f} MiB"] if largest > MOST_COQTOP_MIB else []),
        *([f"this process grew by {own - first:.0f} MiB"] if own - first > MOST_GROWTH_MIB else []),
    ]
    print("\n".join(problems) or f"nothing is left; largest coqtop {largest:.0f} MiB, growth {own - first:.0f} MiB")
    sys.exit(bool(problems))


if __name__ == "__main__":
    if shutil.which("coqtop") is None:
        sys.exit("coqtop is missing; install it with: make system")
    main()
