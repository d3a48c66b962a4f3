"""Learners: torch is never imported, what trains and with which columns, empty batches, pairs, passes, and ages."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnwise.batching.samples import list_outcomes, list_samples
from turnwise.building.learners import build_learner, read_gradient_settings
from turnwise.building.resolved import resolve
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.batch import Columns, StepReport
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Mean
from turnwise.core.types import (
    DropReason,
    StopReason,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    to_floats,
    to_ids,
)
from turnwise.learning.policy_gradient import PolicyGradientLearner
from turnwise.learning.staleness import compute_ages, compute_staleness_metrics
from turnwise.learning.updates import split_updates
from turnwise.testing import make_completion, make_group, make_task, make_trajectory, make_turn

TINY = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
import turnwise.learning.policy_gradient, turnwise.learning.selection
"""


def config(*overrides: str) -> RunConfig:
    return load_config([TINY], overrides)


def learner(*overrides: str, recompute_old: bool = False) -> PolicyGradientLearner:
    settings = read_gradient_settings(resolve(config("credit.method=dr_grpo", *overrides)))
    return PolicyGradientLearner(replace(settings, recompute_old=recompute_old))


def build(*overrides: str) -> Any:
    return build_learner(resolve(config(*overrides)))


def member(
    draw: int,
    index: int,
    reward: float | None,
    *replies: list[int],
    stop: StopReason = StopReason.DONE,
    versions: tuple[int, ...] = (),
) -> Trajectory:
    turns = []
    for at, reply in enumerate(replies or ([5, 6], [7])):
        completion = make_completion(reply)
        if versions:
            completion = replace(
                completion,
                version_first=min(versions),
                version_last=max(versions),
                versions=to_ids(versions[: len(reply)]),
            )
        turns.append(make_turn([1, 2], completion, parent=at - 1 if at else None))
    return make_trajectory(*turns, reward=reward, member=index, draw=draw, stop=stop)


def group(draw: int, *members: Trajectory) -> TrajectoryGroup:
    return make_group(*members, task=make_task(str(draw)))


def name(draw: int, index: int) -> TrajectoryId:
    return TrajectoryId(draw=draw, member=index)


def test_learners_import_neither_torch_nor_transformers() -> None:
    subprocess.run([sys.executable, "-c", BLOCKED], check=True, timeout=60)


def test_credit_and_columns_reach_the_samples_that_train() -> None:
    # Member 1 is invalid, so it has neither a sample to score nor credit: rewards 1 and 0 have the mean 0.5.
    groups = [group(3, member(3, 0, 1.0), member(3, 1, None), member(3, 2, 0.0, [8]))]
    scored = list_samples(groups)
    assert [s.origin.trajectory for s in scored] == [name(3, 0), name(3, 2)]
    assert list_outcomes(groups) == [1.0, 0.0]
    old = (np.array([-1.5, -2.5, -3.5], np.float32), np.array([-4.5], np.float32))
    taught = learner(recompute_old=True)
    assert taught.wanted == {"old_logprobs"}
    made = taught.assign(groups, Columns(old_logprobs=old), 1)
    assert (made.batch.step, made.batch.objective, made.batch.updates) == (1, "policy_gradient", ((0, 1),))
    assert [s.advantages[s.loss_mask].tolist() for s in made.batch.samples] == [[0.5, 0.5, 0.5], [-0.5]]
    assert made.batch.columns.old_logprobs == old
    assert made.advantages is not None
    assert [a.tolist() for a in made.advantages[name(3, 0)] if a is not None] == [[0.5, 0.5], [0.5]]
    assert (made.drops, made.batch.kl_coefficient, made.batch.entropy_coefficient) == ((), None, None)


def test_truncated_trajectories_count_in_credit_and_do_not_train() -> None:
    cut = member(0, 0, 1.0, stop=StopReason.MAX_TURNS)
    old = (np.zeros(3), np.full(3, 9.0))
    taught = learner("rollout.train_truncated=false", recompute_old=True)
    made = taught.assign([group(0, cut, member(0, 1, 0.0))], Columns(old_logprobs=old), 1)
    [sample] = made.batch.samples
    assert (sample.origin.trajectory, sample.advantages[-1]) == (name(0, 1), -0.5)
    assert made.batch.columns.old_logprobs is not None
    assert [column.tolist() for column in made.batch.columns.old_logprobs] == [[9.0, 9.0, 9.0]]
    assert [(d.trajectory, d.reason) for d in made.drops] == [(name(0, 0), DropReason.TRUNCATED)]


def test_extra_members_count_in_credit_and_do_not_train() -> None:
    old = (np.zeros(3), np.full(3, 9.0), np.full(3, 4.0))
    taught = learner("rollout.train_members=1", "rollout.group_size=3", recompute_old=True)
    made = taught.assign(
        [group(0, member(0, 0, 0.0), member(0, 1, 1.0), member(0, 2, 0.5))], Columns(old_logprobs=old), 1
    )
    [sample] = made.batch.samples
    assert (sample.origin.trajectory, sample.advantages[-1]) == (name(0, 0), -0.5)  # 0 minus the mean of all three
    assert made.batch.columns.old_logprobs is not None
    assert [column.tolist() for column in made.batch.columns.old_logprobs] == [[0.0, 0.0, 0.0]]
    assert [(d.trajectory, d.reason) for d in made.drops] == [
        (name(0, 1), DropReason.EXTRA_MEMBER),
        (name(0, 2), DropReason.EXTRA_MEMBER),
    ]
    failed = taught.assign([group(0, member(0, 0, None), member(0, 1, 1.0))], Columns(), 1)
    assert failed.batch.samples == (), "an extra member never takes the place of one that failed"


def test_limits_that_ended_everything_leave_no_update() -> None:
    cut = [member(0, index, 1.0, stop=StopReason.MAX_TURNS) for index in range(2)]
    taught = learner("rollout.train_truncated=false", "loss.entropy_target=9")
    made = taught.assign([group(0, *cut)], Columns(), 1)
    assert (made.batch.samples, made.batch.updates) == ((), ())
    before = taught.state_dict()
    taught.follow(StepReport(metrics={}, optimizer_steps=0, sums={}))
    assert taught.state_dict() == before, "nothing was measured, so nothing moves"
    with pytest.raises(TrainingError, match="no token to train on"):
        learner().assign([group(0, member(0, 0, None))], Columns(), 1)


def test_coefficients_that_move_travel_with_the_batch() -> None:
    taught = learner("loss.entropy_target=9", "loss.entropy_step=0.25", "loss.kl.coefficient=0.5")
    groups = [group(0, member(0, 0, 1.0), member(0, 1, 0.0))]
    first = taught.assign(groups, Columns(), 1).batch
    taught.follow(StepReport(metrics={"train/entropy": Mean(1.0)}, optimizer_steps=1, sums={}))
    second = taught.assign(groups, Columns(), 2).batch
    assert [b.entropy_coefficient for b in (first, second)] == [0.0, 0.25]
    assert [b.kl_coefficient for b in (first, second)] == [0.5, 0.5]


def test_returns_are_columns_of_a_critic() -> None:
    taught = build("credit.method=gae", "critic.kind=head")
    assert taught.wanted == {"values"}
    values = (np.array([0.5, 0.25, 0.75], np.float32), np.zeros(3, np.float32))
    columns = Columns(values=values, final_values=(0.0, 0.0))
    made = taught.assign([group(0, member(0, 0, 1.0), member(0, 1, 0.0))], columns, 1)
    # gamma = lambda = 1: every token's return is the outcome.
    assert made.batch.columns.returns is not None
    assert [r.tolist() for r in made.batch.columns.returns] == [pytest.approx([1.0] * 3), pytest.approx([0.0] * 3)]
    assert made.batch.columns.values == values
    # Errors 0.5 0.75 0.25 and 0 0 0: mean 0.25, variance 0.875 / 6 - 1 / 16 = 1 / 12; returns vary by 1 / 4.
    assert made.metrics["train/value_explained_variance"].value == pytest.approx(1 - (1 / 12) / (1 / 4))


@pytest.mark.parametrize(("count", "updates"), [(0, 1), (1, 3), (7, 2), (8, 3), (5, 1)])
def test_every_sample_is_in_exactly_one_update(count: int, updates: int) -> None:
    parts = split_updates(count, updates, 3, 2)
    assert sorted(index for part in parts for index in part) == list(range(count))
    assert all(parts)
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1
    assert split_updates(count, updates, 3, 2) == parts


def test_rejection_keeps_the_best_above_each_bar() -> None:
    passes = ["train.algorithm=rejection", "rejection.passes=2", "rejection.first_threshold=0.5"]
    groups = [group(0, member(0, 0, 0.25, [8]), member(0, 1, 0.75)), group(1, member(1, 0, 1.0), member(1, 1, None))]
    made = build(*passes).assign(groups, Columns(), 1)
    # Bars 0.5 and 1: both groups' best, then only the second's, which is the same sample.
    assert [s.origin.trajectory for s in made.batch.samples] == [name(0, 1), name(1, 0)]
    assert (made.batch.objective, made.batch.updates) == ("supervised", ((0, 1), (1,)))
    assert [(d.trajectory, d.reason) for d in made.drops] == [(name(0, 0), DropReason.NOT_SELECTED)]
    assert made.metrics["train/kept_trajectories"].value == 2
    assert build(*passes).assign([groups[0]], Columns(), 1).batch.updates[1] == ()


@pytest.mark.parametrize(("algorithm", "judged"), [("dpo", [True, True, True]), ("step_dpo", [False, False, True])])
def test_pairs_name_samples_and_the_tokens_that_are_judged(algorithm: str, judged: list[bool]) -> None:
    # Both attempts begin alike and part in their second reply.
    better, worse = member(0, 0, 1.0, [5, 6], [7]), member(0, 1, 0.0, [5, 6], [8])
    made = build(f"train.algorithm={algorithm}").assign([group(0, better, worse)], Columns(), 1)
    [pair] = made.batch.pairs
    assert [s.origin.trajectory for s in made.batch.samples] == [name(0, 0), name(0, 1)]
    assert (pair.chosen, pair.rejected, made.batch.updates) == ((0,), (1,), ((0, 1),))
    assert [mask.tolist() for mask in (*pair.chosen_in_step, *pair.rejected_in_step)] == [judged, judged]


def test_a_batch_without_a_pair_counts_as_an_empty_step() -> None:
    groups = [group(0, member(0, 0, 1.0), member(0, 1, 1.0))]
    made = build("train.algorithm=dpo").assign(groups, Columns(), 1)
    assert (made.batch.pairs, made.batch.updates, len(made.drops)) == ((), ((),), 2)


def test_a_learner_without_memory_refuses_one() -> None:
    learners: list[Any] = [build(f"train.algorithm={name}") for name in ("rejection", "dpo")]
    for each in learners:
        each.load_state_dict({})
        with pytest.raises(TrainingError, match="has none; resume"):
            each.load_state_dict({"baselines": {}})


def test_ages_of_tokens_by_hand() -> None:
    # Weights of version 6 train: tokens of versions 4, 5, 5 are 2, 1, 1 old; two replies of version 6 are 0 old.
    stale, fresh = member(0, 0, 1.0, [5, 6, 7], versions=(4, 5, 5)), member(0, 1, 0.0, [5], [6], versions=(6,))
    samples = list_samples([group(0, stale, fresh)])
    assert [s.versions is None for s in samples] == [False, True]
    assert compute_ages(samples, version=6).tolist() == [2, 1, 1, 0, 0]
    values = {key: metric.value for key, metric in compute_staleness_metrics(samples, version=6).items()}
    assert values == pytest.approx(
        {
            "train/age_0_share": 0.4,
            "train/age_1_share": 0.4,
            "train/age_2_share": 0.2,
            "train/staleness_mean": 0.8,
            "train/staleness_max": 2.0,
        }
    )
    made = learner().assign([group(0, stale, fresh)], Columns(), step=7)
    assert made.metrics["train/staleness_max"].value == 2
    observed = replace(samples[1], behavior_logprobs=to_floats(np.full(len(samples[1].token_ids), np.nan)))
    assert len(compute_ages([observed], version=6)) == 0, "tokens that were not sampled have no age"
