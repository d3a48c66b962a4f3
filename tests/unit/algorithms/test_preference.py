"""Pair losses, mined pairs, distillation and selection, by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnwise.algorithms.preference.distillation import compute_distillation_advantages, compute_reverse_kl_loss
from turnwise.algorithms.preference.dpo import compute_dpo_loss
from turnwise.algorithms.preference.pairs import OutcomePair, StepPair, mine_outcome_pairs, mine_step_pairs
from turnwise.algorithms.preference.rejection import compute_rest_thresholds, select_best_of_n
from turnwise.algorithms.preference.step_dpo import compute_step_dpo_loss
from turnwise.core.types import (
    Trajectory,
)
from turnwise.testing import make_group, make_trajectory, make_turn

torch.set_num_threads(1)
# One pair: chosen tokens -0.4 -0.6 against reference -1 -1 (+1), rejected -3 against -1 (-2): h = 3.
POLICY, REFERENCE = (
    torch.tensor([-0.4, -0.6, -3.0], dtype=torch.float64),
    torch.tensor([-1.0, -1.0, -1.0], dtype=torch.float64),
)
SIDES = torch.tensor([0, 0, 1])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_dpo_by_hand() -> None:
    policy = POLICY.clone().requires_grad_()
    output = compute_dpo_loss(policy, REFERENCE, SIDES, num_pairs=1, beta=0.1)
    assert output.losses.item() == pytest.approx(-math.log(sigmoid(0.3)))
    assert output.chosen_rewards.item() == pytest.approx(0.1)
    assert output.rejected_rewards.item() == pytest.approx(-0.2)
    output.losses.sum().backward()
    # d/dh of -log sigmoid(0.1 h) is -0.1 sigmoid(-0.3), with opposite signs for the two sides.
    slope = 0.1 * sigmoid(-0.3)
    assert policy.grad is not None
    assert policy.grad.tolist() == pytest.approx([-slope, -slope, slope])


def test_smoothing_and_ipo_by_hand() -> None:
    smooth = compute_dpo_loss(POLICY, REFERENCE, SIDES, num_pairs=1, beta=0.1, label_smoothing=0.2).losses
    assert smooth.item() == pytest.approx(-0.8 * math.log(sigmoid(0.3)) - 0.2 * math.log(sigmoid(-0.3)))
    # (3 - 1 / 0.2)^2 = 4.
    assert compute_dpo_loss(POLICY, REFERENCE, SIDES, num_pairs=1, beta=0.1, kind="ipo").losses.item() == pytest.approx(
        4.0
    )


def test_untrained_policy_has_loss_ln_2_and_extremes_are_finite() -> None:
    assert compute_dpo_loss(REFERENCE, REFERENCE, SIDES, num_pairs=1, beta=0.1).losses.item() == pytest.approx(
        math.log(2)
    )
    policy = torch.tensor([-1e5, -1.0, 0.0], requires_grad=True)
    loss = compute_dpo_loss(policy, REFERENCE.float(), SIDES, num_pairs=1, beta=1.0).losses
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert policy.grad is not None
    assert torch.isfinite(policy.grad).all()


def test_wrong_pair_options_are_refused() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"beta": 0.0}, "beta is 0.0"),
        ({"beta": 0.1, "label_smoothing": 0.5}, "below 0.5"),
    )
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            compute_dpo_loss(POLICY, REFERENCE, SIDES, num_pairs=1, **options)
    with pytest.raises(ValueError, match="without smoothing"):
        compute_dpo_loss(POLICY, REFERENCE, SIDES, num_pairs=1, beta=0.1, kind="ipo", label_smoothing=0.1)
    with pytest.raises(ValueError, match="1 pairs have only 2 sequences"):
        compute_dpo_loss(POLICY, REFERENCE, torch.tensor([0, 1, 2]), num_pairs=1, beta=0.1)


def test_step_dpo_reads_the_step_only() -> None:
    policy = POLICY.clone().requires_grad_()
    in_step = torch.tensor([False, True, True])
    output = compute_step_dpo_loss(policy, REFERENCE, SIDES, in_step, num_pairs=1, beta=0.1)
    # h = (-0.6 + 1) - (-3 + 1) = 2.4.
    assert output.losses.item() == pytest.approx(-math.log(sigmoid(0.24)))
    output.losses.sum().backward()
    assert policy.grad is not None
    assert policy.grad[0] == 0
    with pytest.raises(ValueError, match="pair 0 has no step token on its rejected side"):
        compute_step_dpo_loss(policy, REFERENCE, SIDES, torch.tensor([True, False, False]), num_pairs=1, beta=0.1)


def test_outcome_pairs_best_against_worst() -> None:
    rewards = [0.5, None, 1.0, 0.0, 1.0, 0.2]
    assert mine_outcome_pairs(rewards, min_margin=0.1) == [OutcomePair(chosen=2, rejected=3, margin=1.0)]
    two = mine_outcome_pairs(rewards, min_margin=0.1, max_pairs=9)
    assert [(p.chosen, p.rejected) for p in two] == [(2, 3), (4, 5)]
    for nothing in ([], [None, None], [1.0], [1.0, 1.0, 1.0], [1.0, 0.95]):
        assert mine_outcome_pairs(nothing, min_margin=0.1) == []
    with pytest.raises(ValueError, match="member 1 is"):
        mine_outcome_pairs([0.0, math.nan], min_margin=0.1)


@given(st.lists(st.one_of(st.none(), st.floats(-1, 1)), max_size=9))
def test_no_member_is_in_two_pairs(rewards: list[float | None]) -> None:
    pairs = mine_outcome_pairs(rewards, min_margin=0.01, max_pairs=99)
    members = [m for pair in pairs for m in (pair.chosen, pair.rejected)]
    assert len(members) == len(set(members))
    assert all((rewards[p.chosen] or 0.0) - (rewards[p.rejected] or 0.0) == p.margin >= 0.01 for p in pairs)


def trajectory(member: int, reward: float | None, turns: list[tuple[list[int], list[int]]]) -> Trajectory:
    """A chain of turns given as (context ids, reply ids)."""
    chain = (
        make_turn(context, reply, parent=index - 1 if index else None) for index, (context, reply) in enumerate(turns)
    )
    return make_trajectory(*chain, member=member, reward=reward)


def test_step_pairs_share_their_prefix() -> None:
    prompt, seen = [1, 2], [9]
    pairs = mine_step_pairs(
        make_group(
            trajectory(0, 0.0, [(prompt, [3]), (seen, [5])]),
            trajectory(1, 1.0, [(prompt, [3]), (seen, [6])]),
            trajectory(2, 0.2, [(prompt, [4]), (seen, [6])]),
            trajectory(3, None, [(prompt, [7])]),
            trajectory(4, 0.6, [(prompt, [3]), ([8], [5])]),
        ),
        min_margin=0.1,
    )
    # First turn: reply 3 has mean (0 + 1 + 0.6) / 3 = 0.5333, reply 4 has 0.2. Chosen is the best through 3: member 1.
    # After 3 and observation 9: reply 6 (1.0) against 5 (0.0). Other prefixes have one reply only.
    assert [(p.chosen_member, p.chosen_turn, p.rejected_member, p.rejected_turn) for p in pairs] == [
        (1, 0, 2, 0),
        (1, 1, 0, 1),
    ]
    assert [p.margin for p in pairs] == pytest.approx([1.6 / 3 - 0.2, 1.0])


def test_no_step_pair_without_a_difference() -> None:
    same = [([1], [3]), ([2], [4])]
    assert mine_step_pairs(make_group(trajectory(0, 0.0, same), trajectory(1, 1.0, same)), min_margin=0.1) == []
    assert mine_step_pairs(make_group(), min_margin=0.1) == []
    close = make_group(trajectory(0, 0.5, [([1], [3])]), trajectory(1, 0.55, [([1], [4])]))
    assert mine_step_pairs(close, min_margin=0.1) == []
    assert mine_step_pairs(close, min_margin=0.01) == [
        StepPair(chosen_member=1, chosen_turn=0, rejected_member=0, rejected_turn=0, margin=pytest.approx(0.05))  # type: ignore[arg-type]
    ]


def test_distillation_advantage_has_the_gradient_of_the_reverse_kl() -> None:
    logits = torch.tensor([0.3, -0.5, 1.0, 0.1], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([1.0, 0.0, -1.0, 0.4], dtype=torch.float64)
    policy = logits.log_softmax(0)
    exact = compute_reverse_kl_loss(logits[None], teacher[None])
    probabilities = policy.detach().exp()
    assert exact.item() == pytest.approx(float((probabilities * (policy.detach() - teacher.log_softmax(0))).sum()))
    # Expected over the policy's own samples, -A log policy has the same gradient.
    advantages = compute_distillation_advantages(policy.detach().numpy(), teacher.log_softmax(0).numpy())
    sampled = (probabilities * -torch.from_numpy(advantages) * policy).sum()
    (want,) = torch.autograd.grad(exact.sum(), logits, retain_graph=True)
    (got,) = torch.autograd.grad(sampled, logits)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    assert compute_reverse_kl_loss(teacher[None], teacher[None]).item() == pytest.approx(0.0, abs=1e-12)


def test_distillation_refuses_missing_scores() -> None:
    assert compute_distillation_advantages(np.array([-1.0]), np.array([-3.0]), coefficient=0.5).tolist() == [-1.0]
    with pytest.raises(ValueError, match="not finite"):
        compute_distillation_advantages(np.array([-1.0]), np.array([-np.inf]))
    with pytest.raises(ValueError, match="same vocabulary"):
        compute_reverse_kl_loss(torch.zeros(1, 3), torch.zeros(1, 4))


def test_selection() -> None:
    rewards = [0.2, None, 1.0, 0.2, 0.9]
    assert select_best_of_n(rewards) == [2]
    assert select_best_of_n(rewards, num_kept=9) == [2, 4, 0, 3]
    assert select_best_of_n(rewards, num_kept=9, min_reward=0.9) == [2, 4]
    assert select_best_of_n([None], num_kept=1) == []
    # Members 0 and 3 are the same attempt, and so are 2 and 4: the better of each counts.
    alike = ["a", "b", "c", "a", "c"]
    assert select_best_of_n(rewards, num_kept=9, contents=alike) == [2, 0]
    assert select_best_of_n(rewards[:2], num_kept=9, contents=["a", "a"]) == [0], "one without a reward hides nothing"
    with pytest.raises(ValueError, match="5 rewards but 2 contents"):
        select_best_of_n(rewards, contents=["a", "b"])
    assert compute_rest_thresholds(first=0.0, last=1.0, num_steps=3) == [0.0, 0.5, 1.0]
    assert compute_rest_thresholds(first=0.0, last=1.0, num_steps=1) == [1.0]
    with pytest.raises(ValueError, match="NaN"):
        select_best_of_n([math.nan])
    with pytest.raises(ValueError, match="not below the first"):
        compute_rest_thresholds(first=1.0, last=0.0, num_steps=3)
