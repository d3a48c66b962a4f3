"""Keeps the token ledger of a run, and watches each step for signs that nothing is being learned.

A learner hands over the samples of its optimizer steps before the first of them; they are reconciled with everything
that was sampled for the step, and the account is on disk before a weight changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from turnwise.config.run import RunConfig
from turnwise.core.metrics import Mean, Metric
from turnwise.core.types import Sample, Scored, TrajectoryGroup
from turnwise.store.ledger import Drop, DropReason, append_ledger, reconcile

Account = Callable[[Sequence[Sequence[Sample]], Sequence[Drop]], None]
"""Takes the samples of every optimizer step of one RL step, as they will train, and why scored trajectories are not
among them.

Raises LedgerError, before anything is trained, when a sampled token would train twice, differently or not at all
without a reason."""


def open_account(
    run: Path,
    config: RunConfig,
    *,
    step: int,
    version: int,
    groups: Sequence[TrajectoryGroup],
    kept: Sequence[TrajectoryGroup],
    over_budget: Collection[str] = (),
    retried: Sequence[TrajectoryGroup] = (),
) -> Account:
    """The account of one step: `groups` were sampled, `kept` of them may train, `version` is the weights that do.

    Of the groups that are not kept, `over_budget` names those the step had no need of; `retried` are attempts that were
    thrown away. The tokens of greedy attempts that only give a baseline are no rollouts and stand in no account."""
    kept_ids = {group.group_id for group in kept}
    filtered = [
        Drop(
            group_id=group.group_id,
            member=trajectory.member,
            reason=DropReason.OVER_BUDGET if group.group_id in over_budget else DropReason.FILTERED_GROUP,
        )
        for group in groups
        if group.group_id not in kept_ids
        for trajectory in group.trajectories
        if isinstance(trajectory.reward, Scored)
    ]
    by_gradient = config.train.algorithm == "policy_gradient"
    # Rejection sampling trains on the best again in each pass, and one trajectory may stand in several pairs.
    max_times = 1 if by_gradient else config.rejection.passes if config.train.algorithm == "rejection" else None

    def account(updates: Sequence[Sequence[Sample]], drops: Sequence[Drop]) -> None:
        ledger = reconcile(
            step,
            groups,
            updates,
            [*filtered, *drops],
            version=version,
            retried=[trajectory for group in retried for trajectory in group.trajectories],
            max_times=max_times,
            observations_train=not config.loss.mask_observations,
        )
        append_ledger(run, ledger)

    return account


def compute_diversity_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, Metric]:
    """`rollout/identical_groups`: share of groups of two or more whose members all sampled the same tokens; absent
    without such groups.

    Only completions are compared. A policy that has become certain repeats itself too, but all groups at once at a
    temperature above 0 means that the members share their random numbers."""
    shared = []
    for group in groups:
        if len(group.trajectories) > 1:
            sampled = {tuple(turn.completion.token_ids.tobytes() for turn in t.turns) for t in group.trajectories}
            shared.append(float(len(sampled) == 1))
    return {"rollout/identical_groups": Mean.of(shared)} if shared else {}


def describe_alarms(values: Mapping[str, float | None], config: RunConfig) -> list[str]:
    """What a person should hear about a step's recorded metrics; empty when all is well."""
    alarms = []
    if values.get("rollout/identical_groups") == 1 and config.rollout.temperature > 0:
        alarms.append(
            "alarm: in every group all members sampled the same tokens although rollout.temperature is above 0; the "
            "engine ignores the request's seed or the temperature, or the policy has collapsed"
        )
    if values.get("credit/no_signal_groups") == 1:
        alarms.append(
            "alarm: no group had members with different rewards, so credit has nothing to compare; change the tasks "
            "or the reward"
        )
    stepped = (values.get("train/grad_norm") or 0) > 0 and (values.get("train/lr") or 0) > 0
    if values.get("train/changed_tensors") == 0 and stepped:
        alarms.append(
            "alarm: the optimizer stepped and no weight changed; the learning rate is below the precision of the "
            "weights' dtype, or the optimizer holds other tensors than the model"
        )
    return alarms
