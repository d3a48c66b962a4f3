"""Whole runs keep their ledger and pass the audit, whatever they learn by; a run that was interrupted keeps the same
one."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.config.load import dump_resolved, load_config
from turnwise.config.run import RunConfig
from turnwise.reporting.console import Display
from turnwise.runs.build import build_system
from turnwise.runs.train import Run, run_train
from turnwise.store.ledger import LEDGER, load_ledgers
from turnwise.store.run_folder import RunFolder

TINY = Path(__file__).parent.parent.parent / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=150",
    "tokenizer.vocab_size=450",
    "environment.args.kinds={unanswerable=0.7, 1hop=0.3}",
    "rollout.tasks_per_step=3",
    "rollout.group_size=3",
    "rollout.max_turns=4",
    "sft.steps=40",
    "sft.batch_size=16",
    "sft.num_demonstrations=160",
    "train.steps=2",
    "train.checkpoint_every=1",
    "train.num_threads=1",
    "evaluate.tasks=0",
    "engine.max_concurrency=16",
]


def recipe(tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config([TINY], [*SMALL, f"run.output={tmp_path}", *overrides])


def audited(tmp_path: Path, *overrides: str) -> tuple[Path, AuditReport]:
    run = run_train(recipe(tmp_path, *overrides), resume=None, display=False)
    return run, run_audit(run, replay_tools=True)


@pytest.mark.parametrize(
    ("overrides", "drops", "skipped"),
    [
        ((), set(), ""),
        (("loss.updates_per_step=2",), set(), ""),
        (("loss.mask_observations=false",), set(), ""),
        (('credit.method="remax"',), set(), ""),
        (('credit.method="gae"', 'critic.kind="head"'), set(), "reads more than the store keeps"),
        (('train.algorithm="rejection"', "rejection.passes=2"), {"not_selected"}, "has no advantages"),
        (('train.algorithm="dpo"',), {"not_selected"}, "has no advantages"),
        (
            ('rollout.dynamic_sampling.metric="reward"', "rollout.dynamic_sampling.max_batches=2"),
            {"filtered_group"},
            "",
        ),
    ],
)
def test_every_way_to_learn_is_accounted_for(
    tmp_path: Path, overrides: tuple[str, ...], drops: set[str], skipped: str
) -> None:
    run, report = audited(tmp_path, *overrides)
    assert report.breaches == []
    ledgers = load_ledgers(run)
    assert sorted(ledgers) == [1, 2]
    assert all(ledger.version == step - 1 for step, ledger in ledgers.items())
    for ledger in ledgers.values():
        assert ledger.sampled == ledger.trained + sum(ledger.dropped.values())
        assert (ledger.context_trained > 0) == ("loss.mask_observations=false" in overrides)
    assert {reason for ledger in ledgers.values() for reason in ledger.dropped} == drops
    reasons = " ".join(report.tallies["advantages"].not_checked)
    assert skipped in reasons
    assert bool(skipped) == bool(reasons)
    assert report.tallies["rewards"].checked > 0
    assert report.facts["logprob_share_checked"] == 1.0


def test_parity_is_a_metric_of_every_step_and_an_event_before_the_first(tmp_path: Path) -> None:
    run = run_train(recipe(tmp_path), resume=None, display=False)
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    for row in rows:
        assert 0 <= row["train/logprob_gap_mean"] <= row["train/logprob_gap_max"] < 2e-4
        assert 0 <= row["train/logprob_k3"] < 1e-8
        assert 0.999 < row["train/effective_share"] <= 1.0
        assert row["rollout/identical_groups"] < 1
        assert (row["train/changed_tensors"] > 0) == (row["train/grad_norm"] > 0)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["text"][:22] for event in events if event["kind"] == "parity"] == ["parity before step 1: "]


class StopAt(Display):
    """Interrupts the run when a step is shown."""

    def __init__(self, step: int) -> None:
        super().__init__(total_steps=3, title="stop", enabled=False)
        self._stop_at = step
        self._phase_now = ""

    def phase(self, name: str, *, total: int | None = None) -> None:
        self._phase_now = name

    def update(self, step: int, values: Mapping[str, float | None]) -> None:
        if self._phase_now == "train" and step == self._stop_at:
            raise KeyboardInterrupt


def test_a_resumed_run_keeps_the_ledger_of_one_that_was_never_stopped(tmp_path: Path) -> None:
    overrides = ("train.steps=3", "train.checkpoint_every=2")
    whole, report = audited(tmp_path, *overrides)
    assert report.breaches == []
    folder = RunFolder.create(tmp_path / "stopped")
    folder.write_json("config.json", dump_resolved(recipe(tmp_path, *overrides)))
    with pytest.raises(KeyboardInterrupt):
        Run(build_system(recipe(tmp_path, *overrides)), folder, StopAt(3)).run()
    assert len(load_ledgers(folder.path)) == 3
    run_train(None, resume=folder.path, display=False)
    assert (folder.path / LEDGER).read_bytes() == (whole / LEDGER).read_bytes()
    assert run_audit(folder.path).breaches == []
