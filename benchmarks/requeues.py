"""Two jobs on one run folder, killed at random and requeued at once: `python benchmarks/requeues.py`.

Both jobs are `turnwise train RECIPE --resume auto`, restarted after every end, as by a scheduler: with `--wait` for the
other job, or without, in which case one of them is refused. At random moments a random one gets SIGKILL or SIGTERM, and
a new job takes its place, until the run has done its steps. Runs are synchronous and asynchronous (staleness 2) in
turn. A job may end with 0, by its signal, with 130 after SIGTERM, or with 2 and a line that names the other job;
anything else is a breach. So is, at any time, a line of the run folder that cannot follow those before it, and also a
missing step, a draw that trained twice, a second run folder, and anything that the audit finds.

The environment is `turnwise.testing.NotesFamily` and the model one of random weights, so that a job is short; jobs are
forked from this process, which has imported everything, and otherwise run the same code as the command line.

Prints a JSON summary. Exits 1 on a breach."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import transformers.models.qwen3.modeling_qwen3  # noqa: F401, a fork of this process need not load it
from finished_run import list_breaches

from turnwise.cli.main import main as run_command
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train  # noqa: F401
from turnwise.store.salvage import find_problem

STEPS = 10
RECIPE = [
    *("environment.name=turnwise.testing.notes:NotesFamily", "tokenizer.num_texts=60", "tokenizer.vocab_size=320"),
    *("rollout.tasks_per_step=2", "rollout.group_size=2", "rollout.max_tokens=64", "rollout.max_turn_tokens=8"),
    *("sft.steps=2", "sft.num_demonstrations=4", "sft.batch_size=2", "evaluate.tasks=2", "train.parity_every=0"),
    *("engine.max_concurrency=8", "engine.num_threads=1", "train.num_threads=1"),
    *(f"train.steps={STEPS}", "train.checkpoint_every=3", "run.name=requeued"),
]
LAYOUTS = {"synchronous": [], "asynchronous": ["schedule.max_staleness=2"]}
WAITS_S = [0.0, 2.0, 600.0]
REFUSED = "is being written by process"
LIFE_S = 900.0
"""Seconds after which an unfinished run counts as hanging."""


def fork(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a child whose output goes to `log`. Returns its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:  # the child ends here, whatever happened
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return child


@dataclass
class Job:
    """One process of one of the two jobs."""

    pid: int
    log: Path
    sent: list[signal.Signals] = field(default_factory=list)


@dataclass(kw_only=True)
class Siege:
    """One run, and what happened to its jobs."""

    layout: str
    folder: Path
    choose: random.Random
    mean_s: float
    """Mean seconds between two signals."""
    max_requeues: int
    ends: Counter[str] = field(default_factory=Counter)
    requeues: int = 0
    breaches: list[str] = field(default_factory=list)
    num_jobs: int = 0

    def begin(self) -> Job:
        """Start a job."""
        self.num_jobs += 1
        arguments = ["turnwise", "train", *RECIPE, *LAYOUTS[self.layout], f"run.output={self.folder / 'runs'}"]
        arguments += ["--resume", "auto", "--wait", str(self.choose.choice(WAITS_S))]

        def work() -> None:
            sys.argv = arguments
            run_command()

        log = self.folder / f"job{self.num_jobs}.log"
        return Job(fork(work, log), log)

    def run(self) -> None:
        """Run both jobs until the run is done and both have ended."""
        jobs = [self.begin(), self.begin()]
        until, next_s, done = time.monotonic() + LIFE_S, self.draw_time(), False
        while jobs and not self.breaches:
            time.sleep(0.02)
            for job in list(jobs):
                pid, status = os.waitpid(job.pid, os.WNOHANG)
                if pid:
                    jobs.remove(job)
                    done |= self.judge_end(job, os.waitstatus_to_exitcode(status))
                    if not done:
                        jobs.append(self.begin())
            if time.monotonic() > until:
                self.breaches.append(f"{self.folder} hangs")
            if time.monotonic() > next_s and not done and self.requeues < self.max_requeues:
                next_s = self.draw_time()
                job = self.choose.choice(jobs)
                job.sent.append(self.choose.choice([signal.SIGKILL, signal.SIGTERM]))
                os.kill(job.pid, job.sent[-1])
                self.requeues += 1
        for job in jobs:
            os.kill(job.pid, signal.SIGKILL)
            os.waitpid(job.pid, 0)
        self.judge_run()

    def draw_time(self) -> float:
        """Draw the time of the next signal."""
        return time.monotonic() + self.choose.expovariate(1 / self.mean_s)

    def judge_end(self, job: Job, status: int) -> bool:
        """Whether the run is done. Adds a breach for an exit that neither a signal nor the other job explains."""
        text = job.log.read_text(errors="replace") if job.log.exists() else ""  # killed before it opened its log
        if status == 0:
            kind = "done"
        elif status == 2 and REFUSED in text:
            kind = "refused"
        elif -status in job.sent or (status == 130 and signal.SIGTERM in job.sent):
            kind = "SIGTERM" if status == 130 else signal.Signals(-status).name
        else:
            kind = "failed"
            self.breaches.append(f"{job.log} ended with status {status}: {text[-2000:]}")
        self.ends[kind] += 1
        for run in (self.folder / "runs").glob("*/config.json"):
            problem = None if kind == "done" else self.look(run.parent)
            if problem is not None:
                self.breaches.append(f"{run.parent} after {job.log.name}: {problem}")
        return status == 0

    def look(self, run: Path) -> str | None:
        """What is wrong with the lines of a run folder while a job may write it: problems that persist a moment later,
        unlike those of a line being written or a ledger being cut back."""
        for _ in range(5):
            if (problem := find_problem(run)) is None:
                return None
            time.sleep(0.2)
        return problem

    def judge_run(self) -> None:
        """Check what must hold for a run that is done."""
        runs = [path.parent for path in (self.folder / "runs").glob("*/config.json")]
        if len(runs) != 1:
            self.breaches.append(f"{self.folder} has {len(runs)} runs")
            return
        [run] = runs
        if (problem := find_problem(run)) is not None:
            self.breaches.append(problem)
            return
        self.breaches += list_breaches(run, STEPS)
        if (run / "damaged").exists():
            self.breaches.append(f"{run} was repaired")

        def audit() -> None:
            report = audit_run(run)
            print(*map(str, report.breaches), sep="\n")
            raise SystemExit(len(report.breaches) > 0)

        log = self.folder / "audit.log"
        if os.waitstatus_to_exitcode(os.waitpid(fork(audit, log), 0)[1]):
            self.breaches.append(f"{run}: the audit found a breach: {log.read_text()[-2000:]}")


def main() -> None:
    """Run, print, exit 1 on a breach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requeues", type=int, default=200, help="signals in all, half of them in each layout")
    parser.add_argument("--per-run", type=int, default=10, help="most signals to the jobs of one run")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two signals, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="begin no further run after so long")
    options = parser.parse_args()
    folder, choose, began = Path(tempfile.mkdtemp(prefix="requeues")), random.Random(options.seed), time.monotonic()
    requeues: Counter[str] = Counter(dict.fromkeys(LAYOUTS, 0))
    ends: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    breaches: list[str] = []
    while sum(requeues.values()) < options.requeues and not breaches:
        if options.seconds and time.monotonic() - began > options.seconds:
            break
        name = min(LAYOUTS, key=lambda each: requeues[each])
        path = folder / f"{sum(runs.values())}-{name}"
        path.mkdir()
        most = min(options.per_run, -(-options.requeues // 2) - requeues[name])
        siege = Siege(layout=name, folder=path, choose=choose, mean_s=options.every, max_requeues=most)
        siege.run()
        runs[name] += 1
        requeues[name] += siege.requeues
        ends += siege.ends
        breaches += siege.breaches
        summary = {"run": path.name, "requeues": siege.requeues, "jobs": siege.num_jobs, "ends": siege.ends}
        print(json.dumps(summary), file=sys.stderr, flush=True)
        if not siege.breaches:
            shutil.rmtree(path)
    seconds = round(time.monotonic() - began, 1)
    summary = {"requeues": sum(requeues.values()), "by_layout": requeues, "runs": runs, "ends": ends}
    print(json.dumps({**summary, "seconds": seconds, "breaches": breaches, "ok": not breaches}, indent=1))
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
