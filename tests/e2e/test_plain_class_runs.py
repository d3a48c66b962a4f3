"""`examples/guess.py`: a plain class of fifteen lines and a recipe of ten train, and the audit passes."""

import sys
from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.runs.audit import audit_run
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SHORT = ["sft.steps=2", "sft.num_demonstrations=32", "sft.batch_size=8", "train.steps=2", "evaluate.tasks=4"]
SHORT += ["rollout.tasks_per_step=2", "rollout.group_size=4", "train.num_threads=1", "engine.num_threads=1"]


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def test_the_example_is_as_short_as_it_says() -> None:
    from count_lines import count_lines

    assert count_lines(EXAMPLES / "guess.py") <= 15
    # The model's ten lines come with the recipe.
    recipe = (EXAMPLES / "guess.toml").read_text(encoding="utf-8").split("[model.config]")[0].splitlines()
    assert sum(1 for line in recipe if line.strip() and line[0] != "#") <= 10


def test_a_plain_class_trains_and_its_run_passes_the_audit(tmp_path: Path) -> None:
    config = load_config([EXAMPLES / "guess.toml"], [*SHORT, f"run.output={tmp_path}"])
    path = run_train(config, resume=None, display=False)
    folder = RunFolder.open(path)
    assert [row["step"] for row in folder.read_metrics() if row["phase"] == "train"] == [1, 2]
    assert "GuessEnv has no _oracle" in (path / "events.jsonl").read_text(encoding="utf-8")
    assert audit_run(path, replay_tools=True, device=None).to_json()["ok"]
    assert "guess" in sys.modules
