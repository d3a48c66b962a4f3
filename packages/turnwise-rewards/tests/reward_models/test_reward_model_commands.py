"""`turnwise reward-model` on a run of a few steps, and RL that reads the model it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import Scored
from turnwise.questions.labels import read_labelled
from turnwise.runs.train import run_train
from turnwise.store.groups import GroupStore
from turnwise_rewards import RECIPES
from turnwise_rewards.commands.reward_model import app
from turnwise_rewards.reward_models.chain import ChainEnvironment
from turnwise_rewards.runs.reward_models import TrainingPlan, check_can_fork, train_reward_model

CHAIN, RL = RECIPES / "reward_models" / "chain.toml", RECIPES / "reward_models" / "rl.toml"
SMALL = ["sft.steps=25", "sft.num_demonstrations=300", "evaluate.tasks=10", "sft.batch_size=32"]


def call(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_a_model_is_trained_measured_used_and_read_by_rl(tmp_path: Path) -> None:
    run = run_train(load_config([CHAIN], [f"run.output={tmp_path}", *SMALL]), resume=None, display=False)
    sizes = ["--tasks", 6, "--attempts", 2, "--steps", 4, "--batch", 8]
    said = call("train", run, tmp_path / "soft", "--continuations", 2, *sizes)
    assert "labels (soft) of 12 attempts" in said
    call("train", run, tmp_path / "orm", "--labels", "outcome", *sizes)
    facts = json.loads((tmp_path / "soft" / "reward_model.json").read_text())
    assert (facts["kind"], facts["plan"]["labels"], facts["step"]) == ("process", "soft", 0)
    measured = json.loads(call("evaluate", run, tmp_path / "soft", "--tasks", 4, "--attempts", 2, "--json"))
    assert measured == json.loads((run / "reward_models" / "soft.json").read_text())
    assert measured["attempts"] == 8
    table = call("best-of", run, tmp_path / "soft", tmp_path / "orm", "--tasks", 4, "--attempts", 2)
    for name in ("one sample", "majority", "random scores", "oracle", "best by soft, min", "vote by orm"):
        assert name in table
    with pytest.raises(ConfigError, match="already exists; name another path"):
        call("train", run, tmp_path / "soft")
    with pytest.raises(DataError, match="has stored no trajectories of RL; leave --stored out"):
        call("train", run, tmp_path / "stored", "--stored")
    file = tmp_path / "steps.jsonl"
    assert "questions: " in call("questions", run, file, "--tasks", 6, "--attempts", 2, "--window", 1)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {len(row["messages"]) for row in rows} == {2}
    assert file.with_suffix(".heldout.jsonl").read_text()
    assert all(read_labelled(row).label in ("yes", "no") for row in rows)
    policy = run / "checkpoints" / "step_000000"
    overrides = [f"run.output={tmp_path}", f"model.path={policy}", f"tokenizer.path={policy}", "evaluate.tasks=4"]
    overrides += ["train.steps=1", "rollout.tasks_per_step=2", "rollout.group_size=2", "credit.method=process_scores"]
    reader = "turnwise_rewards.reward_models.annotator"
    overrides += [f"annotators.prm.kind={reader}:REWARD_MODEL", f"annotators.prm.options.path={tmp_path / 'soft'}"]
    overrides += [f"rewards.orm.kind={reader}:MODEL_REWARD", f"rewards.orm.options.path={tmp_path / 'orm'}"]
    learned = run_train(load_config([CHAIN, RL], overrides), resume=None, display=False)
    store = GroupStore(learned)
    attempts = [t for draw in store.list_draws() for t in store.load(draw).trajectories]
    assert len(attempts) == 4
    for attempt in attempts:
        assert isinstance(attempt.reward, Scored)
        assert [term.name for term in attempt.terms] == ["orm"]
        assert all(0 < turn.scores.process_score < 1 for turn in attempt.turns)  # type: ignore[operator]
    # What RL has stored can be labelled without sampling anything.
    plan = TrainingPlan(labels="returns", stored=True, steps=2, batch=4)
    facts = train_reward_model(learned, tmp_path / "returns", plan, show=lambda text: None)
    assert facts["num_labels"] == sum(len(attempt.turns) for attempt in attempts)


def test_labels_by_continuation_need_an_environment_that_forks() -> None:
    check_can_fork(ChainEnvironment(), "soft", "chain")
    with pytest.raises(ConfigError, match=r"labels=.soft. continue .* object of environment.name=.mine. cannot"):
        check_can_fork(object(), "soft", "mine")


@pytest.mark.parametrize("name", ["chain", "rl", "judge", "self_rewarding"])
def test_recipes_are_read(name: str, tmp_path: Path) -> None:
    recipes = RECIPES / "reward_models"
    files = {"rl": ["chain", "rl"], "self_rewarding": ["chain", "rl", "self_rewarding"]}.get(name, [name])
    config = load_config([recipes / f"{each}.toml" for each in files], [f"run.output={tmp_path}"])
    assert config.run.name.startswith("reward_models")
