"""`turnwise train` killed in the middle of an asynchronous run goes on from where it was."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.journal import read_journal

TINY = Path(__file__).parent.parent.parent / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=200",
    "tokenizer.vocab_size=500",
    "rollout.tasks_per_step=2",
    "rollout.group_size=2",
    "sft.steps=4",
    "sft.batch_size=8",
    "sft.num_demonstrations=32",
    "train.steps=12",
    "train.checkpoint_every=0",
    "train.num_threads=1",
    "evaluate.tasks=0",
    "schedule.max_staleness=2",
]


def test_a_killed_run_redoes_its_steps_bit_for_bit(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from turnwise.cli.main import main; main()",
        "train",
        str(TINY),
        *SMALL,
        f"run.output={tmp_path}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            runs = [path.parent for path in tmp_path.glob("*/journal.jsonl")]
            if runs and len(read_journal(runs[0]).trained) >= 4:
                break
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    [run] = runs
    before = read_journal(run)
    assert 4 <= len(before.trained) < 12
    run_train(None, resume=run, display=False)
    after = read_journal(run)
    assert max(after.trained) == 12
    for step, trained in before.trained.items():
        assert (after.taken[step], after.trained[step].sums) == (before.taken[step], trained.sums)
    for record in before.waiting:
        assert after.draws[record.draw].digest == record.digest
    report = audit_run(run)
    assert not report.breaches, [str(breach) for breach in report.breaches]
