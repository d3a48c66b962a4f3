"""Every way to learn, end to end on a recipe small enough for a test; and what a finished run says about its credit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupted import at_step, train_until
from run_rows import read_rows
from typer.testing import CliRunner

from turnwise.cli.main import app
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError, TrainingError
from turnwise.core.types import DropReason
from turnwise.runs.audit import audit_run
from turnwise.runs.explain import explain_trajectory
from turnwise.runs.train import run_train
from turnwise.store.advantages import load_advantages
from turnwise.store.groups import GroupStore
from turnwise.store.journal import read_journal

TINY = Path(__file__).parent.parent.parent / "recipes" / "search_r1" / "tiny.toml"
SMALL = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=32",
    "model.config.head_dim=8",
    "tokenizer.num_texts=200",
    "tokenizer.vocab_size=500",
    "environment.args.kinds={no_search = 1.0}",
    "environment.args.reward=format",
    "rollout.tasks_per_step=3",
    "rollout.group_size=4",
    "train.num_threads=1",
    "engine.max_concurrency=16",
    "evaluate.tasks=0",
    "train.checkpoint_every=1",
]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that answers sometimes: where the runs of this file start."""
    warm = ["sft.steps=60", "sft.batch_size=16", "sft.num_demonstrations=256", "train.steps=0"]
    run = run_train(
        load_config([TINY], [*SMALL, *warm, f"run.output={tmp_path_factory.mktemp('warm')}"]),
        resume=None,
        display=False,
    )
    return run / "checkpoints" / "step_000000"


def recipe(start: Path, output: Path, *overrides: str) -> RunConfig:
    return load_config(
        [TINY], [*SMALL, f"model.path={start}", "sft.steps=0", "train.steps=2", f"run.output={output}", *overrides]
    )


def train_rows(run: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(run) if row["phase"] == "train"]


KL = ("loss.kl.coefficient=0.05", "loss.kl.kind=k1", "loss.kl.place=reward")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ["credit.method=gae", "critic.kind=head", *KL],
            {"train/value_loss", "train/value_explained_variance", "train/kl_reference"},
        ),
        pytest.param(
            ["credit.method=turn_gae", "critic.kind=separate", "critic.epochs=2", "credit.options.bootstrap=value"],
            {"train/value_loss"},
            marks=pytest.mark.slow,
        ),
        (["credit.method=gigpo", "loss.method=gspo", *KL], {"train/clip_fraction", "train/kl_reference"}),
        (["credit.method=remax"], set()),
        (["credit.method=prime"], {"train/implicit_loss", "train/implicit_accuracy"}),
        (
            ["loss.method=dapo", "loss.updates_per_step=2", "rollout.dynamic_sampling.metric=reward"],
            {"rollout/kept_groups", "rollout/groups"},
        ),
        (
            ["loss.recompute_old=true", "loss.correction.mode=truncate", "loss.correction.level=sequence"],
            {"train/correction_kept", "train/correction_weight"},
        ),
        pytest.param(
            ["loss.method=kl_cov", "loss.options.share=0.1", "loss.updates_per_step=2"],
            {"train/clip_fraction"},
            marks=pytest.mark.slow,
        ),
        (
            ["train.algorithm=rejection", "rejection.passes=2", "rejection.first_threshold=-1.0"],
            {"train/kept_trajectories"},
        ),
        (["train.algorithm=dpo", "preference.min_margin=0.01"], {"train/pairs"}),
        pytest.param(
            ["train.algorithm=step_dpo", "preference.min_margin=0.01"], {"train/pairs"}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_kind_of_learning_takes_its_steps(
    start: Path, tmp_path: Path, overrides: list[str], told: set[str]
) -> None:
    run = run_train(recipe(start, tmp_path, *overrides), resume=None, display=False)
    rows = train_rows(run)
    assert [row["step"] for row in rows] == [1, 2]
    assert told <= set(rows[0])
    assert all(np.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))
    weights = [(run / "checkpoints" / f"step_{step:06d}" / "model.safetensors").read_bytes() for step in (0, 2)]
    assert weights[0] != weights[1]


def test_shaped_rewards_are_what_trains(start: Path, tmp_path: Path) -> None:
    options = [
        "credit.method=dr_grpo",
        "credit.shaping.stages={format={weight=0.5, threshold=0.2}, f1={weight=1.0}}",
        "credit.shaping.few_calls=true",
        "credit.shaping.length_weight=0.2",
        "train.steps=1",
    ]
    run = run_train(recipe(start, tmp_path, *options), resume=None, display=False)
    stored, trained = load_advantages(run, 1) or {}, read_journal(run).taken[1]
    seen = 0
    for group in map(GroupStore(run).load, trained):
        parts = [{part.name: part.value for part in t.reward.parts} for t in group.trajectories]  # type: ignore[union-attr]
        right = [each["success"] == 1 for each in parts]
        rewards = [0.5 * each["format"] + (each["f1"] if each["format"] >= 0.2 else 0) for each in parts]
        assert not any(t.num_tool_calls for t in group.trajectories)  # so that every factor for few calls is 1
        lengths = [t.num_sampled_tokens for t in group.trajectories]
        span = max(lengths) - min(lengths)
        for index, length in enumerate(lengths):
            share = 0.5 - (length - min(lengths)) / span if span else 0.0
            rewards[index] += 0.2 * (share if right[index] else min(0.0, share))
        mean = sum(rewards) / len(rewards)  # Dr.GRPO subtracts it and divides by nothing
        for t, reward in zip(group.trajectories, rewards, strict=True):
            turns = [turn for turn in stored[t.id] or () if turn is not None]
            assert np.concatenate(turns) == pytest.approx(reward - mean, abs=1e-6)
            seen += reward != mean
    assert seen > 1  # rewards differ
    assert audit_run(run).breaches == []


def test_recomputed_old_logprobs_are_the_samplers(start: Path, tmp_path: Path) -> None:
    # Trainer and sampler share weights: weights of the correction are 1 and nothing is dropped.
    overrides = [
        "loss.recompute_old=true",
        "loss.correction.mode=mask",
        "loss.correction.low=0.999",
        "loss.correction.high=1.001",
    ]
    first = train_rows(run_train(recipe(start, tmp_path, *overrides), resume=None, display=False))[0]
    assert first["train/correction_kept"] == 1.0
    assert first["train/correction_weight"] == pytest.approx(1.0, abs=1e-4)


def test_a_teacher_equal_to_the_student_teaches_nothing_and_another_one_does(start: Path, tmp_path: Path) -> None:
    same = ["loss.teacher.replace_credit=true", f"loss.teacher.path={start}"]
    for kind in ("sampled", "exact"):
        run = run_train(
            recipe(start, tmp_path / kind, *same, f"loss.teacher.kind={kind}", "train.steps=1"),
            resume=None,
            display=False,
        )
        [row] = train_rows(run)
        assert abs(row["train/teacher_gap" if kind == "sampled" else "train/teacher_kl"]) < 1e-5
    other = tmp_path / "other"
    taught = run_train(recipe(start, other, "train.steps=3", "train.lr=0.01"), resume=None, display=False)
    teacher = taught / "checkpoints" / "step_000003"
    overrides = [f"loss.teacher.path={teacher}", "loss.teacher.replace_credit=true", "train.steps=1"]
    [row] = train_rows(run_train(recipe(start, tmp_path / "student", *overrides), resume=None, display=False))
    assert row["train/teacher_gap"] > 1e-4
    assert row["train/grad_norm"] > 1e-4


def test_dynamic_sampling_learns_from_informative_groups_within_its_budget(start: Path, tmp_path: Path) -> None:
    overrides = ["rollout.dynamic_sampling.metric=reward", "rollout.dynamic_sampling.max_batches=3"]
    run = run_train(recipe(start, tmp_path, *overrides), resume=None, display=False)
    rows = train_rows(run)
    state, store = read_journal(run), GroupStore(run)
    groups = {draw: store.load(draw) for draw in store.list_draws()}
    for row in rows:
        assert row["rollout/kept_groups"] <= 3 <= row["rollout/groups"] <= 9
        assert row.get("credit/no_signal_groups", 0.0) == 0.0
        assert sum(record.step == row["step"] for record in state.draws.values()) == row["rollout/groups"]
        trained = state.taken[row["step"]]
        assert len(trained) == row["rollout/kept_groups"]
        assert all(len(set(groups[draw].rewards())) > 1 for draw in trained)
        assert {id.draw for id in load_advantages(run, row["step"]) or {}} <= set(trained)
    assert {record.reason for record in state.dropped} <= {DropReason.FILTERED_GROUP, DropReason.UNUSED}
    # Every task is new: the cursor moved by what was drawn, across steps too.
    assert [record.task_index for record in state.draws.values()] == list(range(len(groups)))


def test_nothing_informative_leaves_the_policy_as_it_is(start: Path, tmp_path: Path) -> None:
    # One token per reply: every reward is 0.
    short = [
        "rollout.max_turn_tokens=1",
        "rollout.dynamic_sampling.metric=success",
        "rollout.dynamic_sampling.max_batches=2",
    ]
    run = run_train(recipe(start, tmp_path, *short, "train.steps=1"), resume=None, display=False)
    [row] = train_rows(run)
    assert (row["rollout/kept_groups"], row["rollout/groups"]) == (0, 6)
    assert row["dropped/filtered_group"] == row["rollout/sampled_tokens"] > 0
    assert audit_run(run).breaches == []
    weights = [(run / "checkpoints" / f"step_{step:06d}" / "model.safetensors").read_bytes() for step in (0, 1)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    "overrides",
    [
        ["credit.method=gae", "critic.kind=separate", "critic.epochs=2", "loss.updates_per_step=2", *KL],
        ["credit.method=prime"],
        pytest.param(
            ["credit.method=gae", "critic.kind=head", "rollout.dynamic_sampling.metric=reward"], marks=pytest.mark.slow
        ),
        pytest.param(["credit.method=scheduled_mix", "credit.options.boundaries=[0.01, 0.9]"], marks=pytest.mark.slow),
        pytest.param(["train.algorithm=dpo", "preference.min_margin=0.01"], marks=pytest.mark.slow),
    ],
    ids=lambda overrides: overrides[0],
)
def test_a_resumed_run_is_the_run_that_was_never_stopped(start: Path, tmp_path: Path, overrides: list[str]) -> None:
    config = recipe(start, tmp_path / "whole", *overrides, "train.steps=3", "train.checkpoint_every=1")
    whole = run_train(config, resume=None, display=False)
    resumed = run_train(None, resume=train_until(config, tmp_path / "stopped", at_step(2)), display=False)
    assert train_rows(resumed) == train_rows(whole)
    files = [path.name for path in (whole / "checkpoints" / "step_000003").glob("*.safetensors")]
    assert ("critic.safetensors" in files) == any("critic.kind" in override for override in overrides)
    assert ("implicit.safetensors" in files) == ("credit.method=prime" in overrides)
    for name in files:
        left, right = ((run / "checkpoints" / "step_000003" / name).read_bytes() for run in (resumed, whole))
        assert left == right, name


def test_a_method_that_needs_what_the_environment_lacks_says_what(start: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError,
        match=r"credit\.method='potential'.*potential.*have the environment score every reply with a "
        r"`potential`",
    ):
        run_train(recipe(start, tmp_path / "credit", "credit.method=potential"), resume=None, display=False)
    with pytest.raises(
        ConfigError, match=r"rollout\.dynamic_sampling\.metric='accuracy'.*its parts: success, exact_match, f1, format"
    ):
        run_train(
            recipe(start, tmp_path / "rollout", "rollout.dynamic_sampling.metric=accuracy"), resume=None, display=False
        )


def test_a_recipe_that_does_not_fit_is_refused_before_a_run_folder_exists(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set critic\.kind"):
        run_train(recipe(start, tmp_path / "none", "credit.method=gae"), resume=None, display=False)
    assert not (tmp_path / "none").exists()


@pytest.fixture(scope="module")
def finished(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_train(
        recipe(start, tmp_path_factory.mktemp("explained"), "credit.method=remax"), resume=None, display=False
    )


def test_explain_shows_what_was_trained_and_what_others_would_have_given(finished: Path) -> None:
    draw = read_journal(finished).taken[2][1]
    group, stored = GroupStore(finished).load(draw), load_advantages(finished, 2)
    assert stored is not None
    explained = explain_trajectory(finished, f"{draw}/0", ["remax", "dr_grpo", "scheduled_mix"])
    assert explained.columns == ("remax (as trained)", "dr_grpo", "scheduled_mix")
    rewards = [reward for reward in group.rewards() if reward is not None]
    advantages = stored[group.trajectories[0].id]
    assert advantages is not None
    for turn, trained in zip(explained.turns, advantages, strict=True):
        assert trained is not None
        told = turn.credit["remax (as trained)"]
        assert told is not None
        assert told.mean == pytest.approx(float(trained.mean()))
        dr_grpo = turn.credit["dr_grpo"]
        assert dr_grpo is not None
        # Reward minus the group's mean, the same for every token.
        assert dr_grpo.low == dr_grpo.high == pytest.approx(rewards[0] - sum(rewards) / len(rewards))
    assert explained.group_rewards == tuple(group.rewards())
    # The opening state is the same for all: three other members.
    assert explained.turns[0].twins >= 3


def test_explain_refuses_what_it_cannot_know(finished: Path) -> None:
    with pytest.raises(DataError, match="not of the form DRAW/MEMBER, such as 57/0"):
        explain_trajectory(finished, "best", [])
    with pytest.raises(DataError, match="has no group for draw 77; it has stored groups of draws 0 to 5"):
        explain_trajectory(finished, "77/0", [])
    with pytest.raises(ConfigError, match="did you mean 'grpo'"):
        explain_trajectory(finished, "0/0", ["grop"])
    with pytest.raises(TrainingError, match="values is missing"):
        explain_trajectory(finished, "0/0", ["gae"])


def test_the_command_line_lists_and_explains(finished: Path) -> None:
    def run_cli(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["algorithms", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    tables = json.loads(run_cli("--json"))
    assert {"grpo", "gae", "gigpo", "vspo"} <= {row["name"] for row in tables["credit"]}
    assert {"ppo", "gspo", "dapo"} <= {row["name"] for row in tables["loss"]}
    text = run_cli("explain", str(finished), "0/1", "--method", "ReMax", "--method", "GRPO")
    assert "remax (as trained)" in text
    assert "0/1" in text
