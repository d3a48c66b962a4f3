"""Preference losses, distillation and rewards: ours against the peers'."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from agreement_golden import Case, assert_equal, compares, pack, pack_inputs, unpack

from turnwise.algorithms.aggregate import compute_token_mean
from turnwise.algorithms.preference.distillation import compute_reverse_kl_loss
from turnwise.algorithms.preference.dpo import compute_dpo_loss
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.rewards.answers import exact_match
from turnwise.rewards.length import compute_overlong_penalty
from turnwise.rewards.tool_rl import compute_correctness, compute_tool_rl_reward


def check_preference(case: Case, compute) -> None:
    """`compute(policy, reference, sequence)` gives the losses of all pairs; rows 2p and 2p + 1 are pair p, as ours
    wants it."""
    inputs = pack_inputs(case.batch, advantages="row")
    value = compute(inputs.policy_logprobs, pack(case.batch, case.batch.reference_logprobs), inputs.sequence).mean()
    assert_equal(value.item(), case.output("value"))
    assert_equal(unpack(case.batch, torch.autograd.grad(value, inputs.policy_logprobs)[0]), case.output("gradient"))


def options(case: Case) -> dict[str, Any]:
    """By our names."""
    return {"num_pairs": len(case.batch.group) // 2, "beta": case.options["beta"]}


@compares("trl/preference/dpo/beta_0.1", "trl/preference/dpo/beta_0.7", ours=compute_dpo_loss)
def _(case: Case) -> None:
    check_preference(case, lambda *arrays: compute_dpo_loss(*arrays, **options(case)).losses)


@compares(
    "trl/preference/cdpo", ours=compute_dpo_loss, relation="equal to the peer's AOT applied to one pair at a time"
)
def _(case: Case) -> None:
    smoothing = case.options["label_smoothing"]
    check_preference(case, lambda *arrays: compute_dpo_loss(*arrays, **options(case), label_smoothing=smoothing).losses)


@compares(
    "trl/preference/ipo",
    ours=compute_dpo_loss,
    relation="the peer's margin is a mean over tokens, ours a sum: equal with log-probabilities / length",
)
def _(case: Case) -> None:
    length = pack(case.batch, case.batch.mask.sum(1))

    def compute(policy, reference, sequence):
        return compute_dpo_loss(policy / length, reference / length, sequence, **options(case), kind="ipo").losses

    check_preference(case, compute)


@compares(
    "trl/preference/step_dpo",
    ours=compute_step_dpo_loss,
    relation="equal to the peer's DPO with everything except the step masked",
)
def _(case: Case) -> None:
    batch = case.batch
    step = np.zeros_like(batch.mask)
    for row, turn in enumerate(batch.trains.argmax(1)):
        step[row, slice(*batch.spans[row, turn])] = 1.0
    in_step = pack(batch, step) == 1
    assert 0 < in_step.sum() < len(in_step)

    def compute(policy, reference, sequence):
        return compute_step_dpo_loss(policy, reference, sequence, in_step, **options(case)).losses

    check_preference(case, compute)


@compares("trl/preference/sft", ours=compute_token_mean)
def _(case: Case) -> None:
    def compute(policy, _, sequence):
        losses = -policy[sequence % 2 == 0]
        return compute_token_mean(losses, len(losses))

    check_preference(case, compute)


@compares("trl/distillation/reverse_kl", ours=compute_reverse_kl_loss)
def _(case: Case) -> None:
    logits = torch.tensor(case.inputs["student"], dtype=torch.float64, requires_grad=True)
    value = compute_reverse_kl_loss(logits, torch.tensor(case.inputs["teacher"], dtype=torch.float64)).mean()
    assert_equal(value.item(), case.output("value"))
    assert_equal(torch.autograd.grad(value, logits)[0], case.output("gradient"))


@compares("trl/reward/overlong", ours=compute_overlong_penalty)
def _(case: Case) -> None:
    max_tokens, buffer = case.options["max_completion_len"], case.options["soft_punish_cache"]
    ours = [compute_overlong_penalty(length, max_tokens=max_tokens, buffer=buffer) for length in case.inputs["lengths"]]
    assert_equal(ours, case.output("rewards"))


@compares(
    "verl/reward/exact_match",
    ours=exact_match,
    relation='equal with normalize="squad"; but if normalization leaves nothing of two answers, the peer calls '
    "them equal, while ours keeps the last word",
)
def _(case: Case) -> None:
    answers, theirs = case.inputs["answers"], case.output("rewards")
    nothing_left = np.array([golds == ["the"] for _, golds in answers])
    ours = np.array([exact_match(answer, golds, "squad") for answer, golds in answers])
    assert_equal(ours[~nothing_left], theirs[~nothing_left])
    assert ours[nothing_left].tolist() == [0.0]
    assert theirs[nothing_left].tolist() == [1.0]
    assert 0 < case.output("rewards").sum() < len(case.output("rewards"))


@compares("verl/reward/tool_calls", ours=(compute_correctness, compute_tool_rl_reward))
def _(case: Case) -> None:
    calls = [[[(call["name"], call["parameters"]) for call in side] for side in pair] for pair in case.inputs["calls"]]
    assert_equal([compute_correctness(predicted, gold) for gold, predicted in calls], case.output("rewards"))
    totals = [compute_tool_rl_reward(predicted, gold, well_formed=True).total for gold, predicted in calls]
    assert_equal(totals, case.output("rewards") + 1)
    assert np.unique(case.output("rewards")).size > 5
