"""Advantages and the critic: ours against the peers'."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from agreement_golden import (
    Case,
    assert_equal,
    batches,
    compares,
    compute_credit,
    pack,
    to_padded,
    to_trajectories,
    unpack,
)

from turnwise.algorithms.advantages.gae import build_gae, compute_gae, compute_trajectory_gae
from turnwise.algorithms.advantages.gdpo import build_gdpo
from turnwise.algorithms.advantages.grpo import Deviation, build_dr_grpo, build_grpo, compute_grpo_advantages
from turnwise.algorithms.advantages.opo import build_opo
from turnwise.algorithms.advantages.otb import build_otb
from turnwise.algorithms.advantages.pass_at_k import build_pass_at_k
from turnwise.algorithms.advantages.reinforce import build_reinforce_plus_plus, build_reinforce_plus_plus_baseline
from turnwise.algorithms.advantages.remax import build_remax
from turnwise.algorithms.advantages.rloo import build_rloo
from turnwise.algorithms.credit import split_turns
from turnwise.algorithms.value_loss import compute_value_loss

ALONE = "for a group of one the peer returns the raw reward, ours 0; all other rows equal"
WHITENING = "equal (whitening: the peer divides by sqrt(var + 1e-8), ours by std + epsilon)"


def check_alone(case: Case, ours: np.ndarray, *, alone_scale: float) -> None:
    """Rows in groups of more agree; a row alone has `alone_scale * reward` there and 0 here."""
    batch = case.batch
    alone = np.bincount(batch.group)[batch.group] == 1
    assert alone.sum() == 1
    assert_equal(ours[~alone], case.output("advantages")[~alone])
    assert_equal(case.output("advantages")[alone], alone_scale * batch.reward[alone, None] * batch.mask[alone])
    assert not ours[alone].any()


@compares("verl/grpo", ours=(build_grpo, compute_grpo_advantages), relation=ALONE)
def _(case: Case) -> None:
    check_alone(case, compute_credit(case, build_grpo(epsilon=1e-6)), alone_scale=1 / (1 + 1e-6))


@compares(
    "verl/grpo_vectorized",
    ours=build_grpo,
    relation="the peer computes in float32: equal to 1e-5, except that a constant group gets rounding noise, ours "
    "exactly 0; " + ALONE,
)
def _(case: Case) -> None:
    batch, ours, peers = case.batch, compute_credit(case, build_grpo(epsilon=1e-6)), case.output("advantages")
    special = np.isin(batch.group, (1, 2))  # the constant group, and the group of one
    assert_equal(ours[~special], peers[~special], tolerance=1e-5)
    assert not ours[special].any()
    assert (peers[batch.group == 1][batch.mask[batch.group == 1] == 1] > 1e-3).all()
    assert_equal(peers[batch.group == 2], (batch.reward[:, None] * batch.mask)[batch.group == 2], tolerance=1e-5)


@compares("verl/dr_grpo", ours=build_dr_grpo, relation=ALONE)
def _(case: Case) -> None:
    check_alone(case, compute_credit(case, build_dr_grpo()), alone_scale=1.0)


@compares("verl/rloo", ours=build_rloo, relation=ALONE)
def _(case: Case) -> None:
    check_alone(case, compute_credit(case, build_rloo()), alone_scale=1.0)


@compares("verl/rloo_vectorized", ours=build_rloo)
def _(case: Case) -> None:
    assert_equal(compute_credit(case, build_rloo()), case.output("advantages"))


@compares("verl/opo", ours=build_opo, relation=ALONE)
def _(case: Case) -> None:
    check_alone(case, compute_credit(case, build_opo()), alone_scale=1.0)


@compares(
    "verl/otb/outcome",
    "verl/otb/turn_rewards",
    ours=build_otb,
    relation="for a group of one the peer uses the return, ours 0; all other rows equal",
)
def _(case: Case) -> None:
    batch = case.batch
    trajectories = to_trajectories(batch, turn_rewards=case.options["rewards"] == "turn_rewards")
    # The peer reads the old policy's log-probabilities, which `squared_mass` fits.
    old = [
        replace(
            t,
            turns=tuple(
                replace(turn, logprobs=values)
                for turn, values in zip(t.turns, split_turns(t, row[mask == 1]), strict=True)
            ),
        )
        for t, row, mask in zip(trajectories, batch.old_logprobs, batch.mask, strict=True)
    ]
    ours, alone = to_padded(batch, build_otb()(old)), np.bincount(batch.group)[batch.group] == 1
    assert_equal(ours[~alone], case.output("advantages")[~alone])
    assert not ours[alone].any()
    returns = np.cumsum(
        batches.token_rewards(batch, turn_rewards=case.options["rewards"] == "turn_rewards")[:, ::-1], axis=1
    )[:, ::-1]
    assert_equal(case.output("advantages")[alone], (returns * batch.mask)[alone])


@compares(
    "verl/gpg", ours=build_dr_grpo, relation="GPG's advantage is Dr.GRPO's times B / (rewards that are not 0); " + ALONE
)
def _(case: Case) -> None:
    scale = len(case.batch.reward) / np.count_nonzero(case.batch.reward)
    check_alone(case, scale * compute_credit(case, build_dr_grpo()), alone_scale=scale)


@compares(
    "verl/remax",
    ours=build_remax,
    relation="equal on tokens that train; the peer keeps the reward-to-go on observations",
)
def _(case: Case) -> None:
    assert_equal(compute_credit(case, build_remax()), case.output("advantages") * case.batch.mask)
    assert (case.output("advantages") * (1 - case.batch.mask)).any()


@compares("verl/pass_at_k/std", "verl/pass_at_k/no_std", ours=build_pass_at_k)
def _(case: Case) -> None:
    deviation: Deviation = "sample" if case.options["norm_adv_by_std_in_grpo"] else "none"
    assert_equal(compute_credit(case, build_pass_at_k(deviation=deviation)), case.output("advantages"))


@compares("verl/reinforce_pp_baseline", ours=build_reinforce_plus_plus_baseline, relation=WHITENING)
def _(case: Case) -> None:
    assert_equal(compute_credit(case, build_reinforce_plus_plus_baseline()), case.output("advantages"))


@compares(
    "verl/reinforce_pp_baseline_ragged", ours=build_reinforce_plus_plus_baseline, relation=ALONE + ", before whitening"
)
def _(case: Case) -> None:
    batch = case.batch
    alone = np.bincount(batch.group)[batch.group] == 1
    centred = compute_credit(case, build_reinforce_plus_plus_baseline(whitening="none"))
    assert not centred[alone].any()
    peers = (centred + (alone * batch.reward)[:, None] * batch.mask)[batch.mask == 1]
    expected = np.zeros_like(batch.mask)
    expected[batch.mask == 1] = (peers - peers.mean()) / peers.std(ddof=1)
    assert_equal(expected, case.output("advantages"))


@compares("verl/gdpo_one_reward", ours=build_gdpo, relation=WHITENING)
def _(case: Case) -> None:
    batch = case.batch
    trajectories = to_trajectories(batch)
    parts = [{"outcome": t.reward} for t in trajectories if t.reward is not None]
    whole = [
        type(t)(group=t.group, reward=t.reward, turns=t.turns, parts=p)
        for t, p in zip(trajectories, parts, strict=True)
    ]
    ours = to_padded(batch, build_gdpo(normalization="tokens", epsilon=1e-6)(whole))
    assert_equal(ours, case.output("advantages"), tolerance=2e-6)


@compares(
    "verl/gdpo_two_rewards",
    ours=build_gdpo,
    relation="the peer computes in float32 regardless of its input: equal to 1e-5",
)
def _(case: Case) -> None:
    weights = dict(zip(("part0", "part1"), case.options["weights"], strict=True))
    ours = compute_credit(case, build_gdpo(weights=weights, normalization="tokens", epsilon=1e-6))
    assert_equal(ours, case.output("advantages"), tolerance=1e-5)


@compares("trl/advantage/gdpo", ours=build_gdpo)
def _(case: Case) -> None:
    weights = dict(zip(("part0", "part1"), case.options["reward_weights"], strict=True))
    check_rows(case, build_gdpo(weights=weights, normalization="trajectories", epsilon=1e-4))


def check_rows(case: Case, function) -> None:
    """TRL gives one advantage per row; a row without reward is NaN there, None here, and trains nothing in both."""
    batch = case.batch
    reward = batch.reward.copy()
    if "unscored_row" in case.inputs:
        reward[case.inputs["unscored_row"]] = np.nan
    credited = function(to_trajectories(batch, reward=reward))
    assert [row for row, turns in enumerate(credited) if turns is None] == [case.inputs[key] for key in case.inputs]
    assert_equal(to_padded(batch, credited), case.output("advantages")[:, None] * batch.mask)


@compares(
    "trl/advantage/grpo",
    "trl/advantage/grpo_unscored_row",
    ours=build_grpo,
    relation="equal with epsilon 1e-4; ours defaults to 1e-6",
)
def _(case: Case) -> None:
    check_rows(case, build_grpo(epsilon=1e-4))
    default = compute_credit(case, build_grpo())
    assert np.abs(default - compute_credit(case, build_grpo(epsilon=1e-4))).max() > 1e-5


@compares("trl/advantage/dr_grpo", ours=build_dr_grpo)
def _(case: Case) -> None:
    check_rows(case, build_dr_grpo())


@compares("trl/advantage/rloo", "trl/advantage/rloo_unscored_row", ours=build_rloo)
def _(case: Case) -> None:
    check_rows(case, build_rloo())


@compares(
    *(f"verl/gae_over_actions/{discounts}" for discounts in ("1.0_1.0", "0.9_0.8", "0.9_0.0")),
    ours=(build_gae, compute_trajectory_gae),
    relation=WHITENING,
)
def _(case: Case) -> None:
    batch, discounts = case.batch, {"gamma": case.options["gamma"], "gae_lambda": case.options["lam"]}
    assert_equal(compute_credit(case, build_gae(**discounts), turn_rewards=True), case.output("whitened"))
    returns = [[compute_trajectory_gae(t, **discounts)[1]] for t in to_trajectories(batch, turn_rewards=True)]
    assert_equal(to_padded(batch, returns), case.output("returns") * batch.mask)
    plain = compute_credit(case, build_gae(**discounts, whitening="none"), turn_rewards=True)
    assert_equal(plain, (case.output("returns") - batch.values) * batch.mask)


@compares(
    *(f"verl/gae_over_observations/{discounts}" for discounts in ("1.0_1.0", "0.9_0.8", "0.9_0.0")),
    ours=compute_gae,
    relation=(
        "a recursion that includes observations equals ours only with gamma = lambda = 1, or if observations are "
        "treated as actions"
    ),
)
def _(case: Case) -> None:
    batch, discounts = case.batch, {"gamma": case.options["gamma"], "gae_lambda": case.options["lam"]}
    rewards = batches.token_rewards(batch, turn_rewards=True)
    for row, length in enumerate(batch.length):  # every position counted as an action
        _, returns = compute_gae(rewards[row, :length], batch.values[row, :length], **discounts)
        assert_equal(returns, case.output("returns")[row, :length])
    ours = compute_credit(case, build_gae(**discounts, whitening="none"), turn_rewards=True)
    gap = np.abs(ours - (case.output("returns") - batch.values) * batch.mask).max()
    assert gap < 1e-9 if discounts == {"gamma": 1.0, "gae_lambda": 1.0} else gap > 0.1


@compares(
    "verl/reinforce_pp/gamma_1.0_kl_0.0",
    "verl/reinforce_pp/gamma_0.9_kl_0.0",
    "verl/reinforce_pp/gamma_1.0_kl_0.05",
    ours=build_reinforce_plus_plus,
    relation=WHITENING,
)
def _(case: Case) -> None:
    options = {"gamma": case.options["gamma"], "kl_coefficient": case.options["kl_ratio"]}
    assert_equal(compute_credit(case, build_reinforce_plus_plus(**options)), case.output("advantages"))
    assert_equal(compute_credit(case, build_reinforce_plus_plus(**options, whitening="none")), case.output("returns"))


@compares("verl/value_loss", ours=compute_value_loss)
def _(case: Case) -> None:
    batch = case.batch
    values = pack(batch, batch.new_values).requires_grad_()
    losses, _ = compute_value_loss(
        values, pack(batch, batch.values), pack(batch, batch.returns), clip=case.options["cliprange_value"]
    )
    (gradient,) = torch.autograd.grad(losses.mean(), values)
    assert_equal(losses.mean().item(), case.output("value"))
    assert_equal(unpack(batch, gradient), case.output("gradient"))
