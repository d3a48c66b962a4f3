"""Whole runs keep their ledger and pass the audit, whatever they learn by; a run that was interrupted keeps the same
one."""

import json
from collections import Counter
from pathlib import Path

import pytest
from interrupted import at_step, train_until

from turnwise.audit.audit import AuditReport
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.metrics import find_definition
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.journal import read_journal
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import LEDGER, RunFolder

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
    return run, audit_run(run, replay_tools=True)


@pytest.mark.parametrize(
    ("overrides", "drops", "skipped"),
    [
        ((), set(), ""),
        pytest.param(("loss.updates_per_step=2",), set(), "", marks=pytest.mark.slow),
        pytest.param(("loss.epochs=2", "loss.updates_per_step=2"), set(), "", marks=pytest.mark.slow),
        (("loss.mask_observations=false",), set(), ""),
        (('credit.method="remax"',), set(), ""),
        (('credit.method="gae"', 'critic.kind="head"'), set(), "reads more than the store keeps"),
        (
            ('train.algorithm="rejection"', "rejection.passes=2", "loss.updates_per_step=2"),
            {"not_selected"},
            "has no advantages",
        ),
        pytest.param(('train.algorithm="dpo"',), {"not_selected"}, "has no advantages", marks=pytest.mark.slow),
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
    accounts = load_accounts(run)
    trained = Counter(account.step for account in accounts if account.fate == "trained")
    assert trained == {1: 3, 2: 3} or drops == {"filtered_group"}
    for account in accounts:
        assert account.version == account.step - 1
        assert account.sampled == account.trained + sum(account.dropped.values())
    context_trained = sum(account.context_trained for account in accounts)
    assert (context_trained > 0) == ("loss.mask_observations=false" in overrides)
    assert {reason for account in accounts for reason in account.dropped} == drops
    reasons = " ".join(report.tallies["advantages"].not_checked)
    assert skipped in reasons
    assert bool(skipped) == bool(reasons)
    assert report.tallies["rewards"].checked > 0
    assert report.tallies["logprobs"].checked == report.tallies["ledger"].checked
    unchecked = {"tokens of greedy baselines"} if 'credit.method="remax"' in overrides else set()
    assert set(report.tallies["logprobs"].not_checked) == unchecked


def test_parity_is_a_metric_of_every_step_and_an_event_before_the_first(tmp_path: Path) -> None:
    run = run_train(recipe(tmp_path), resume=None, display=False)
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    for row in rows:
        assert [name for name in row if "/" in name and find_definition(name) is None] == [], "metrics without a row"
        assert 0 <= row["train/logprob_gap_mean"] <= row["train/logprob_gap_max"] < 2e-4
        assert 0 <= row["train/logprob_k3"] < 1e-8
        assert 0.999 < row["train/effective_share"] <= 1.0
        assert row["rollout/identical_groups"] < 1
        assert row["train/changed_tensors"] > 0 or row["train/grad_norm"] == 0
        dropped = sum(value for name, value in row.items() if name.startswith("dropped/"))
        accounts = [account for account in load_accounts(run) if account.step == row["step"]]
        assert dropped == sum(sum(account.dropped.values()) for account in accounts)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["text"][:22] for event in events if event["kind"] == "parity"] == ["parity before step 1: "]


def metrics_of(run: Path) -> list[dict[str, object]]:
    """Every row without what a clock measured: a redone step has no schedule."""
    times = ("time", "seconds", "_per_s")
    return [
        {k: v for k, v in row.items() if not k.endswith(times) and not k.startswith("schedule/")}
        for row in RunFolder.open(run).read_metrics()
    ]


@pytest.mark.parametrize("stop_at", [1, *(pytest.param(step, marks=pytest.mark.slow) for step in (2, 3))])
def test_a_resumed_run_is_the_run_that_was_never_stopped_bit_for_bit(tmp_path: Path, stop_at: int) -> None:
    """Checkpoints are those of steps 0, 2 and 3: step 1 or 3 is redone from its groups, after step 2 nothing is."""
    config = recipe(tmp_path, "train.steps=3", "train.checkpoint_every=2", "train.keep_checkpoints=3")
    whole = run_train(config, resume=None, display=False)
    assert audit_run(whole).breaches == []
    stopped = train_until(config, tmp_path / "stopped", at_step(stop_at))
    assert len(load_accounts(stopped)) == 3 * stop_at
    before = {path.name: path.stat().st_mtime_ns for path in (stopped / "groups").glob("*/*")}
    run_train(None, resume=stopped, display=False)
    after = {path.name: path.stat().st_mtime_ns for path in (stopped / "groups").glob("*/*")}
    assert {name: after[name] for name in before} == before, "nothing was sampled again"
    assert (stopped / LEDGER).read_bytes() == (whole / LEDGER).read_bytes()
    assert metrics_of(stopped) == metrics_of(whole)
    assert read_journal(stopped).trained == read_journal(whole).trained
    for name in ("model.safetensors", "state.safetensors"):
        left, right = ((run / "checkpoints" / "step_000003" / name).read_bytes() for run in (stopped, whole))
        assert left == right, name
    assert audit_run(stopped).breaches == []


def test_an_asynchronous_run_is_accounted_for_and_goes_on_after_an_interruption(tmp_path: Path) -> None:
    config = recipe(tmp_path, "schedule.max_staleness=2", "train.steps=4", "train.checkpoint_every=2", "sft.steps=5")
    stopped = train_until(config, tmp_path / "stopped", at_step(3))
    before = read_journal(stopped)
    run_train(None, resume=stopped, display=False)
    after = read_journal(stopped)
    # Step 3 is redone from its groups and gives the weights it gave.
    assert (after.taken[3], after.trained[3]) == (before.taken[3], before.trained[3])
    assert sorted(after.trained) == [1, 2, 3, 4]
    rows = [row for row in metrics_of(stopped) if row["phase"] == "train"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert all(0 <= float(str(row["train/staleness_max"])) <= 2 for row in rows)
    accounts = load_accounts(stopped)
    assert all(account.sampled == account.trained + sum(account.dropped.values()) for account in accounts)
    assert audit_run(stopped, replay_tools=True).breaches == []
