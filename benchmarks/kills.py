"""Kill processes of real training runs with SIGKILL at random moments: `python benchmarks/kills.py`.

Each run is `turnwise train` on recipes/retool/tiny.toml, made small, with its programs in the sandbox. The layouts, in
turn: two rollout processes; two engine workers; a rollout process and two trainer ranks; two rollout processes under
Ray (only with --ray). All but the second are asynchronous with staleness 2. At random moments a process is chosen, its
kind first: the run's own, a rollout process, an engine worker, a trainer rank, or one of the sandbox. A run that ended
is continued with `--resume` until it has done its planned steps. Then it is audited, every draw must have trained at
most once, and no process started by any of its processes may be left.

Prints a JSON summary. Exits 1 on a breach."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from finished_run import list_breaches
from processes import descendants, read_processes

RECIPE = Path(__file__).parent.parent / "recipes" / "retool" / "tiny.toml"
STEPS = 8
SMALL = [
    *("train.num_threads=1", "engine.num_threads=1", "engine.max_concurrency=32", "tokenizer.num_texts=400"),
    *("sft.steps=40", "sft.num_demonstrations=640", "evaluate.tasks=8", "evaluate.controls={}"),
    *(f"train.steps={STEPS}", "train.checkpoint_every=2", "rollout.tasks_per_step=4", "rollout.group_size=4"),
    # A member may lose its process many times here, which is not the environment's fault.
    *("rollout.max_retries=20", "train.parity_every=0"),
]
LAYOUTS = {
    "rollouts": ["rollout.num_workers=2", "schedule.max_staleness=2"],
    "engines": ["engine.kind=workers", "engine.options={num_workers=2}"],
    "ranks": ["rollout.num_workers=1", "train.ranks=2", "schedule.max_staleness=2"],
}
RAY = {"ray": ["rollout.num_workers=2", "schedule.max_staleness=2", "scale.ray=local", "scale.cpus=0"]}
LIFE_S = 1_200.0
"""Seconds after which an unfinished run counts as hanging."""
END_S = 30.0
"""Maximum seconds until everything has ended; Ray's agents take longer than three."""
Process = tuple[int, str]
"""Process id and start time: together never used twice."""


def start_of(pid: int) -> str | None:
    """Start time of a process, in the kernel's ticks; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if stat[0] == "Z" else stat[19]


def list_descendants(root: int) -> dict[Process, str]:
    """The processes below a process, with their command lines."""
    starts = {pid: start_of(pid) for pid in descendants(root)}
    commands = read_processes()
    return {(pid, at): commands[pid][2] for pid, at in starts.items() if at is not None and pid in commands}


def name_kind(command: str, layout: str) -> str | None:
    """The kind of a process; None for one that is left alone (Ray's own and Python's bookkeeping)."""
    if "turnwise.runs.rollout_process" in command:
        return "rollout process"
    if "turnwise.training.ranks.rank" in command:
        return "trainer rank"
    if "multiprocessing.spawn" in command:
        return "engine worker" if layout == "engines" else None
    if "resource_tracker" in command or "ray" in command:
        return None
    return "sandbox"


def is_alive(process: Process) -> bool:
    """Whether the process runs."""
    return start_of(process[0]) == process[1]


@dataclass(kw_only=True)
class Siege:
    """One run and the kills in it."""

    layout: str
    options: list[str]
    folder: Path
    choose: random.Random
    mean_s: float
    """Mean seconds between two kills."""
    max_kills: int
    kills: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    seen: dict[Process, str] = field(default_factory=dict)
    """Every process that was ever started below the run."""
    breaches: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """The file with the output of all processes."""
        return self.folder / "log"

    def find_run(self) -> Path | None:
        """The run folder; None before it exists."""
        return next((path.parent for path in self.folder.glob("runs/*/config.json")), None)

    def live(self) -> bool:
        """Start or continue the run and kill until it ends or is done. Returns whether it is done."""
        run = self.find_run()
        arguments = ["--resume", str(run)] if run else [str(RECIPE), *SMALL, *self.options]
        if run is None:
            arguments += [f"run.output={self.folder / 'runs'}", f"run.seed={self.choose.randrange(1000)}"]
        self.lives += 1
        with self.log.open("ab") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "turnwise", "train", *arguments],
                stdout=output,
                stderr=output,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                cwd=self.folder,
            )
        began, was_killed = time.monotonic(), False
        while driver.poll() is None:
            pause_s = self.choose.expovariate(1 / self.mean_s) if self.left else 1.0
            until = time.monotonic() + min(pause_s, 20.0)
            while driver.poll() is None and time.monotonic() < until:
                self.seen |= list_descendants(driver.pid)
                time.sleep(0.1)
            if time.monotonic() - began > LIFE_S:
                self.breaches.append(f"{self.folder} hangs")
                driver.kill()
            elif driver.poll() is None and self.left:
                was_killed |= self.kill_one(driver)
        status = driver.wait()
        if status and not was_killed:
            self.breaches.append(f"{self.folder} ended with status {status} and nothing of it was killed; see its log")
        return status == 0

    @property
    def left(self) -> bool:
        """Whether more kills are planned."""
        return sum(self.kills.values()) < self.max_kills

    def kill_one(self, driver: subprocess.Popen[bytes]) -> bool:
        """Kill one process of a random kind. Returns whether there was one."""
        kinds: dict[str, list[Process]] = {}
        for process, command in list_descendants(driver.pid).items():
            if (kind := name_kind(command, self.layout)) is not None:
                kinds.setdefault(kind, []).append(process)
        # Rarely the run itself, above all while it starts, which takes most of its time here.
        kind = self.choose.choice(sorted(kinds)) if kinds else ""
        if self.choose.random() < (0.05 if kinds else 0.02):
            kind = "the run"
        if not kind:
            return False
        pid = driver.pid if kind == "the run" else self.choose.choice(kinds[kind])[0]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.kills[kind] += 1
        return True

    def judge(self) -> None:
        """Check what must hold for a run that is done."""
        run = self.find_run()
        assert run is not None
        until = time.monotonic() + END_S
        while any(map(is_alive, self.seen)) and time.monotonic() < until:
            time.sleep(0.2)
        left = [f"{pid}: {command[:100]}" for (pid, at), command in self.seen.items() if is_alive((pid, at))]
        self.breaches += [f"left behind: {each}" for each in left]
        self.breaches += list_breaches(run, STEPS)
        audit = subprocess.run(
            [sys.executable, "-m", "turnwise", "audit", str(run), "--json"], capture_output=True, text=True, check=False
        )
        if audit.returncode:
            self.breaches.append(f"{run}: the audit found a breach: {audit.stdout[-2000:]}{audit.stderr[-500:]}")


def main() -> None:
    """Run, print, and exit 1 on a breach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--kills-per-run", type=int, default=25)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ray", action="store_true", help="also under Ray")
    parser.add_argument("--only", choices=[*LAYOUTS, *RAY], help="one layout")
    parser.add_argument("--seconds", type=float, help="begin no further run after so long")
    options = parser.parse_args()
    layouts = {**LAYOUTS, **(RAY if options.ray or options.only in RAY else {})}
    names = [options.only] if options.only else list(layouts)
    folder, choose = Path(tempfile.mkdtemp(prefix="kills")), random.Random(options.seed)
    kills: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    lives, began = 0, time.monotonic()
    breaches: list[str] = []
    while sum(kills.values()) < options.kills and not breaches:
        if options.seconds and time.monotonic() - began > options.seconds:
            break
        name = names[sum(runs.values()) % len(names)]
        path = folder / f"{sum(runs.values())}-{name}"
        path.mkdir()
        most = min(options.kills_per_run, options.kills - sum(kills.values()))
        siege = Siege(
            layout=name, options=layouts[name], folder=path, choose=choose, mean_s=options.every, max_kills=most
        )
        while not siege.breaches and not siege.live():
            pass
        if not siege.breaches:
            siege.judge()
        runs[name] += 1
        kills += siege.kills
        lives += siege.lives
        breaches += siege.breaches
        print(json.dumps({"run": path.name, "lives": siege.lives, "kills": siege.kills}), file=sys.stderr, flush=True)
        if not siege.breaches:
            shutil.rmtree(path)
    seconds = round(time.monotonic() - began, 1)
    summary = {"kills": sum(kills.values()), "by_kind": kills, "runs": runs, "lives": lives, "seconds": seconds}
    print(json.dumps({**summary, "breaches": breaches, "ok": not breaches}, indent=1))
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
