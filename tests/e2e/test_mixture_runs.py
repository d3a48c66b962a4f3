"""A mixture of experts trained as a user trains it: its experts are on record, audited, and there again on resume."""

from pathlib import Path

import numpy as np
import pytest
from interrupted import at_step, train_until
from run_rows import read_rows
from test_audited_runs import copy_run, found_by, rewrite_arrays

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.groups import GroupStore

NOTES = [
    "environment.name=turnwise.testing:NotesFamily",
    "model.model_type=qwen3_moe",
    "model.config={hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, "
    "num_key_value_heads=2, head_dim=8, tie_word_embeddings=true, initializer_range=0.1, "
    "rope_parameters={rope_type='default', rope_theta=100.0}, moe_intermediate_size=32, num_experts=4, "
    "num_experts_per_tok=2, norm_topk_prob=true}",
    "tokenizer.vocab_size=400",
    "tokenizer.num_texts=60",
    "engine.max_context=64",
    "engine.max_concurrency=64",
    "rollout.max_tokens=64",
    "rollout.max_turns=4",
    "rollout.max_turn_tokens=10",
    "rollout.tasks_per_step=4",
    "rollout.group_size=8",
    "sft.lr=0.01",
    "sft.steps=100",
    "sft.num_demonstrations=1000",
    "train.num_threads=1",
    "train.lr=0.004",
    "train.steps=4",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=9",
    "loss.kl.coefficient=0.001",
    "evaluate.tasks=0",
]


def recipe(tmp_path: Path, *overrides: str) -> RunConfig:
    return load_config([], [*NOTES, f"run.output={tmp_path}", *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_train(recipe(tmp_path_factory.mktemp("runs")), resume=None, display=False)


def test_every_turn_has_its_experts_on_record_and_training_repeats_them(finished: Path) -> None:
    store = GroupStore(finished)
    turns = [turn for draw in store.list_draws() for t in store.load(draw).trajectories for turn in t.turns]
    assert any(turn.parent is not None for turn in turns), "there are later turns"
    for turn in turns:
        assert turn.completion.experts is not None
        num_tokens = len(turn.context_ids) + len(turn.completion.token_ids)
        assert turn.completion.experts.shape == (num_tokens - (turn.parent is None), 2, 2)
    rows = [row for row in read_rows(finished) if row["phase"] == "train"]
    assert [row["train/moved_experts"] for row in rows] == [0, 0, 0, 0]
    assert max(float(str(row["train/logprob_gap_max"])) for row in rows) < 1e-4
    assert any(row["train/loss"] for row in rows), "something was learned"


def test_an_audit_scores_with_them(finished: Path) -> None:
    report = audit_run(finished)
    assert report.breaches == []
    assert report.tallies["logprobs"].checked > 0


def test_a_forged_expert_is_found(finished: Path, tmp_path: Path) -> None:
    """Planted: one token in the middle of the first turn has another expert, and the journal has the forged digest."""
    turn = GroupStore(finished).load(0).trajectories[0].turns[0]
    assert turn.completion.experts is not None
    place = len(turn.context_ids) - 1
    taken = turn.completion.experts[place, 0].tolist()
    other = next(expert for expert in range(4) if expert not in taken)

    def change(arrays: dict[str, np.ndarray]) -> None:
        at = place * 4
        assert arrays["experts"][at : at + 2].tolist() == taken
        arrays["experts"][at] = other

    run = copy_run(finished, tmp_path)
    rewrite_arrays(run, 0, change)
    assert found_by(audit_run(run)) == {"ledger", "logprobs"}


def test_an_expert_that_is_taken_twice_or_missing_is_found(finished: Path, tmp_path: Path) -> None:
    def repeat(arrays: dict[str, np.ndarray]) -> None:
        arrays["experts"][1] = arrays["experts"][0]

    def cut(arrays: dict[str, np.ndarray]) -> None:
        arrays["experts"] = arrays["experts"][:-4]

    for name, change, checks in (("a", repeat, {"turns", "ledger"}), ("b", cut, {"files"})):
        (tmp_path / name).mkdir()
        run = copy_run(finished, tmp_path / name)
        rewrite_arrays(run, 0, change)
        assert checks <= found_by(audit_run(run))


def test_a_resumed_run_is_the_run_that_was_never_stopped(finished: Path, tmp_path: Path) -> None:
    stopped = train_until(recipe(tmp_path), tmp_path / "stopped", at_step(2))
    resumed = run_train(None, resume=stopped, display=False)
    assert read_rows(resumed) == read_rows(finished)
    left, right = (run / "checkpoints" / "step_000004" / "model.safetensors" for run in (resumed, finished))
    assert left.read_bytes() == right.read_bytes()


def test_samples_of_older_weights_train_with_the_experts_of_these(tmp_path: Path) -> None:
    config = recipe(tmp_path, "schedule.max_staleness=2", "train.steps=8")
    run = run_train(config, resume=None, display=False)
    assert any(row["train/moved_experts"] > 0 for row in read_rows(run) if row["phase"] == "train")
    assert audit_run(run).breaches == []


def test_an_engine_that_records_no_experts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.kind='local' does not record which experts"):
        run_train(recipe(tmp_path, "engine.kind=local"), resume=None, display=False)
