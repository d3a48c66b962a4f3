"""Accounts of steps, and the alarms a person should hear."""

from dataclasses import replace
from pathlib import Path

import pytest

from turnwise.batching.samples import to_samples
from turnwise.config.load import load_config
from turnwise.config.run import RunConfig
from turnwise.core.types import (
    Completion,
    FinishReason,
    Invalid,
    Reward,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.learning.drops import list_drops
from turnwise.runs.accounting import (
    compute_diversity_metrics,
    describe_alarms,
    open_account,
)
from turnwise.store.ledger import DropReason, LedgerError, load_ledgers

TASK = Task(environment="none", prompt=(text_message("user", "question"),), payload={})


def recipe(*overrides: str) -> RunConfig:
    return load_config([], ['model.path="somewhere"', *overrides])


def attempt(member: int, tokens: list[int], reward: Reward | None = None, group: str = "g") -> Trajectory:
    completion = Completion(
        token_ids=to_ids(tokens),
        logprobs=to_floats([-1.0] * len(tokens)),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
    )
    turn = Turn(parent=None, context_ids=to_ids([1]), completion=completion, message=text_message("assistant", ""))
    return Trajectory(
        task_id=TASK.id,
        group_id=group,
        member=member,
        turns=(turn,),
        stop=StopReason.DONE,
        reward=reward or Scored(total=1.0),
    )


def group(*attempts: Trajectory, name: str = "g") -> TrajectoryGroup:
    return TrajectoryGroup(task=TASK, group_id=name, trajectories=attempts)


def test_groups_left_out_are_accounted_for(tmp_path: Path) -> None:
    kept = group(attempt(0, [5, 6]), attempt(1, [7], Invalid(reason="hung", retryable=True)))
    filtered = group(
        attempt(0, [5, 6, 7], group="h"), attempt(1, [8], Invalid(reason="hung", retryable=True), group="h"), name="h"
    )
    account = open_account(tmp_path, recipe(), step=3, version=0, groups=[kept, filtered], kept=[kept])
    account([to_samples(kept.trajectories[0])], [])
    ledger = load_ledgers(tmp_path)[3]
    # 2 + 1 tokens of the kept group, 3 + 1 of the other.
    assert (ledger.sampled, ledger.trained, ledger.dropped) == (7, 2, {"invalid": 2, "filtered_group": 3})


def test_groups_the_step_had_no_need_of_and_attempts_made_again(tmp_path: Path) -> None:
    hung = Invalid(reason="hung", retryable=True)
    kept, surplus = group(replace(attempt(0, [5, 6]), attempt=1)), group(attempt(0, [5, 6, 7], group="h"), name="h")
    thrown_away = group(attempt(0, [9], hung))
    account = open_account(
        tmp_path,
        recipe(),
        step=1,
        version=0,
        groups=[kept, surplus],
        kept=[kept],
        over_budget={"h"},
        retried=[thrown_away],
    )
    account([to_samples(kept.trajectories[0])], [])
    ledger = load_ledgers(tmp_path)[1]
    # 2 trained, 3 of the surplus, 1 of the attempt before.
    assert (ledger.sampled, ledger.trained, ledger.dropped) == (6, 2, {"over_budget": 3, "retried": 1})


def test_a_lost_sample_stops_the_step_before_anything_is_written(tmp_path: Path) -> None:
    kept = group(attempt(0, [5, 6]), attempt(1, [7]))
    account = open_account(tmp_path, recipe(), step=1, version=0, groups=[kept], kept=[kept])
    with pytest.raises(
        LedgerError, match="trajectory g/1: 1 of 1 sampled tokens of turn 0 neither train nor are dropped"
    ):
        account([to_samples(kept.trajectories[0])], [])
    assert load_ledgers(tmp_path) == {}


def test_learners_that_choose_say_what_they_did_not(tmp_path: Path) -> None:
    kept = group(attempt(0, [5, 6]), attempt(1, [7]), attempt(2, [8], Invalid(reason="hung", retryable=True)))
    passes = [to_samples(kept.trajectories[1])] * 2
    account = open_account(
        tmp_path,
        recipe('train.algorithm="rejection"', "rejection.passes=2"),
        step=1,
        version=0,
        groups=[kept],
        kept=[kept],
    )
    account(passes, list_drops([kept], {("g", 1)}, DropReason.NOT_SELECTED))
    ledger = load_ledgers(tmp_path)[1]
    assert (ledger.trained, ledger.dropped, ledger.num_updates) == (1, {"not_selected": 2, "invalid": 1}, 2)
    with pytest.raises(LedgerError, match=r"g/0: .* neither train nor are dropped"):
        account(passes, list_drops([kept], {("g", 0), ("g", 1)}, DropReason.NOT_SELECTED))


def test_identical_members_raise_an_alarm() -> None:
    same, different = group(attempt(0, [5, 6]), attempt(1, [5, 6])), group(attempt(0, [5, 6]), attempt(1, [5, 7]))
    assert compute_diversity_metrics([same, different])["rollout/identical_groups"].value == 0.5
    assert compute_diversity_metrics([group(attempt(0, [5]))]) == {}, "a group of one has nothing to compare"
    [alarm] = describe_alarms({"rollout/identical_groups": 1.0}, recipe())
    assert "ignores the request's seed" in alarm
    assert describe_alarms({"rollout/identical_groups": 0.5}, recipe()) == []


def test_a_step_without_effect_or_signal_raises_an_alarm() -> None:
    stepped = {"train/grad_norm": 0.5, "train/lr": 1e-3, "train/changed_tensors": 0.0}
    [alarm] = describe_alarms(stepped, recipe())
    assert "the optimizer stepped and no weight changed" in alarm
    assert describe_alarms(stepped | {"train/changed_tensors": 3.0}, recipe()) == []
    assert describe_alarms(stepped | {"train/grad_norm": 0.0}, recipe()) == [], "no gradient, no change"
    assert describe_alarms({"train/grad_norm": None, "train/lr": 1.0, "train/changed_tensors": 0.0}, recipe()) == []
    [alarm] = describe_alarms({"credit/no_signal_groups": 1.0}, recipe())
    assert "nothing to compare" in alarm
    assert describe_alarms({}, recipe()) == []
