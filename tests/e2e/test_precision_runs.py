"""Whole runs in short formats: stopped and resumed bit for bit, and ended where nothing they learn can arrive."""

from pathlib import Path

import pytest
from interrupted import at_step, train_until
from run_rows import read_rows
from safetensors.torch import load_file

from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import TrainingError
from turnwise.runs.train import run_train

TINY = Path(__file__).parent.parent.parent / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=200",
    "tokenizer.vocab_size=500",
    "rollout.tasks_per_step=4",
    "rollout.group_size=4",
    "rollout.max_turns=4",
    "sft.steps=8",
    "sft.batch_size=8",
    "sft.num_demonstrations=32",
    "train.steps=4",
    "train.checkpoint_every=2",
    "train.num_threads=1",
    "train.micro_batch_tokens=1024",
    "evaluate.tasks=6",
    "engine.max_concurrency=16",
]


def recipe(output: Path, *overrides: str) -> RunConfig:
    return load_config([TINY], [*SMALL, f"run.output={output}", *overrides])


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_a_resumed_run_in_a_short_format_is_the_run_that_was_never_stopped(dtype: str, tmp_path: Path) -> None:
    overrides = [f"model.dtype={dtype}", "loss.kl.coefficient=0.01", "train.lr=1e-4"]
    whole = run_train(recipe(tmp_path / "whole", *overrides), resume=None, display=False)
    # After the checkpoint of step 2: step 3 is done again from its stored groups.
    stopped = train_until(recipe(tmp_path, *overrides), tmp_path / "stopped", at_step(3))
    resumed = run_train(None, resume=stopped, display=False)
    assert read_rows(resumed) == read_rows(whole)
    last = [run / "checkpoints" / "step_000004" for run in (resumed, whole)]
    for name in ("model.safetensors", "state.safetensors"):
        assert (last[0] / name).read_bytes() == (last[1] / name).read_bytes()
    state = load_file(last[0] / "state.safetensors")
    assert any(name.endswith("/master") for name in state)
    assert ("loss_scale/scale" in state) == (dtype == "float16")


def test_a_run_that_learns_nothing_for_want_of_digits_ends(tmp_path: Path) -> None:
    overrides = ["train.lr=1e-13", "train.decay=none", "train.warmup_steps=0", "train.steps=9", "evaluate.tasks=0"]
    # An entropy bonus, so that every step has a gradient.
    overrides += ["loss.entropy_coefficient=0.1"]
    with pytest.raises(TrainingError, match=r"below the resolution of the weights.*train\.lr=1e-13.*float32"):
        run_train(recipe(tmp_path, *overrides), resume=None, display=False)
    rows = [row for run in tmp_path.iterdir() for row in read_rows(run) if row["phase"] == "train"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert max(float(str(row["train/changed_share"])) for row in rows) < 0.01
