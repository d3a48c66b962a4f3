"""Real models play the roles of a small run: two learners, and the run's own past."""

from pathlib import Path

import pytest
from interrupted import at_step, train_until
from run_rows import read_rows
from safetensors.torch import load_file

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import CheckpointError
from turnwise.runs.audit import audit_run
from turnwise.runs.evaluate import run_evaluate
from turnwise.runs.export import export_policy
from turnwise.runs.train import run_train
from turnwise.store.groups import GroupStore

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "rollout.tasks_per_step=4",
    "rollout.group_size=4",
    "sft.steps=25",
    "sft.num_demonstrations=64",
    "train.steps=4",
    "train.checkpoint_every=2",
    "train.parity_every=2",
    "evaluate.tasks=6",
    "engine.max_concurrency=16",
]


@pytest.fixture(autouse=True)
def _find_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def recipe(tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config([BENCHMARKS / "roles.toml"], [*SMALL, f"run.output={tmp_path}", *overrides])


def check_same(first: Path, second: Path) -> None:
    """Both runs wrote the same ledger, metrics and last checkpoint, bit for bit."""
    assert read_rows(first) == read_rows(second)
    assert (first / "ledger.jsonl").read_text() == (second / "ledger.jsonl").read_text()
    last = Path("checkpoints") / "step_000004"
    names = sorted(path.relative_to(first / last) for path in (first / last).rglob("*.safetensors"))
    assert names
    for name in names:
        one, other = load_file(first / last / name), load_file(second / last / name)
        assert all(one[key].equal(other[key]) for key in one.keys() | other.keys())


@pytest.mark.slow
def test_two_learners_stop_go_on_are_audited_and_exported_one_by_one(tmp_path: Path) -> None:
    config = recipe(tmp_path, "roles.hearer=learns:second", "loss.kl.coefficient=0.01")
    whole = run_train(config, resume=None, display=False)
    stopped = train_until(config, tmp_path / "stopped", at_step(3))
    run_train(None, resume=stopped, display=False)
    check_same(whole, stopped)
    report = audit_run(stopped)
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert report.tallies["logprobs"].checked > 0
    folder = whole / "checkpoints" / "step_000004"
    weights = {}
    for name, source in {"first": folder, "second": folder / "policies" / "second"}.items():
        weights[name] = load_file(export_policy(source, tmp_path / name) / "model.safetensors")
        stored = load_file(source / "model.safetensors")
        assert all(weights[name][key].equal(stored[key]) for key in stored)
    assert any(not weights["first"][key].equal(weights["second"][key]) for key in weights["first"])
    start = load_file(whole / "checkpoints" / "step_000000" / "policies" / "second" / "model.safetensors")
    assert any(not start[key].equal(weights["second"][key]) for key in start)
    summary = run_evaluate(whole, tasks=6, changes={}, step=4)
    assert summary.row("all").n >= 6
    # The second learner as somebody else's opponent; and a checkpoint that has lost it.
    frozen = recipe(tmp_path, f"roles.hearer=frozen:{folder / 'policies' / 'second'}", "train.steps=1")
    assert not audit_run(run_train(frozen, resume=None, display=False)).breaches
    (folder / "policies" / "second" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks policies/second/model\.safetensors; delete the folder"):
        run_train(None, resume=whole, display=False)


@pytest.mark.slow
def test_the_past_of_a_real_run_speaks_with_the_weights_of_its_checkpoints(tmp_path: Path) -> None:
    config = recipe(tmp_path, "roles.hearer=past:wins", "train.checkpoint_every=1", "train.keep_checkpoints=1")
    whole = run_train(config, resume=None, display=False)
    stopped = train_until(config, tmp_path / "stopped", at_step(3))
    run_train(None, resume=stopped, display=False)
    check_same(whole, stopped)
    report = audit_run(whole)  # scores what each snapshot said under its checkpoint
    assert not report.breaches, [str(breach) for breach in report.breaches]
    store = GroupStore(whole)
    spoken = {
        turn.completion.version_last
        for draw in store.list_draws()
        for t in store.load(draw).trajectories
        if t.id.role == "hearer"
        for turn in t.turns
    }
    assert len(spoken) > 1
    assert run_evaluate(whole, tasks=6, changes={}, step=4).row("all").n == 6
