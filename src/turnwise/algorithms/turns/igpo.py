"""Information gain per turn (IGPO, arXiv 2510.14967): the change a turn makes to the right answer's probability."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.algorithms.advantages.grpo import Deviation
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.turns.groups import (
    TurnAdvantages,
    build_group_credit,
    check_comparison,
    check_finite,
    compute_returns,
    normalize_pooled,
    require_turn_values,
)


def compute_information_gains(probabilities: Sequence[float], outcome: float, *, prior: float = 0.0) -> list[float]:
    """`r_k = p_k - p_{k-1}` for all turns but the last, which gets the outcome instead; `p_{-1}` is `prior`.

    Args:
        probabilities: `[T]`, geometric mean probability of the gold answer after turn k's observations, in [0, 1]. The
            last one is not read: the last turn answers and is judged by the outcome.
        prior: the probability before the first turn; 0 if it was not measured, so that turn 0 gets all of `p_0`.

    Returns:
        `[T]`; all but the last sum to `p_{T-2} - prior` (with turns from 0), the last is the outcome.

    Raises:
        ValueError: a probability lies outside [0, 1], or the outcome is not finite.
    """
    check_finite([outcome], "outcome")
    for index, p in enumerate([*probabilities, prior]):
        if not 0 <= p <= 1:
            raise ValueError(
                f"answer probability {index} is {p} (of {len(probabilities)} turns and the prior); it must lie in [0, "
                "1]"
            )
    if not probabilities:
        return []
    gains = [after - before for before, after in zip([prior, *probabilities[:-1]], probabilities, strict=True)]
    return [*gains[:-1], outcome]


def compute_igpo_advantages(
    rewards: Sequence[Sequence[float]], *, gamma: float = 1.0, deviation: Deviation = "sample", epsilon: float = 1e-6
) -> TurnAdvantages:
    """`A_ik = sum_{l >= k} gamma^(l-k) norm(r)_il`, where norm pools gains and outcomes of all turns of the group.

    The released code differs (its returns restart at every observation, its mean is per token position); this is the
    paper's formula as we interpret it. A group of one gets exactly 0, as does a group in which all turn rewards are
    equal. With one turn each this is GRPO.

    Raises:
        ValueError: a reward is not finite, or gamma lies outside [0, 1].
    """
    return [compute_returns(row, gamma) for row in normalize_pooled(rewards, deviation=deviation, epsilon=epsilon)]


def build_igpo(*, gamma: float = 1.0, deviation: Deviation = "sample", epsilon: float = 1e-6) -> CreditFunction:
    """Information gains from `CreditTurn.answer_probability`, the prior from `CreditTrajectory.answer_prior`.

    Turn rewards are not read.
    """
    check_comparison(deviation=deviation, epsilon=epsilon, gamma=gamma)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        rewards = []
        for member, outcome in zip(members, outcomes, strict=True):
            probabilities = require_turn_values(
                (turn.answer_probability for turn in member.turns), "answer_probability"
            )
            rewards.append(compute_information_gains(probabilities, outcome, prior=member.answer_prior or 0.0))
        return compute_igpo_advantages(rewards, gamma=gamma, deviation=deviation, epsilon=epsilon)

    return build_group_credit(compute)


IGPO = CreditMethod(
    name="igpo",
    summary="how much each turn raised the probability of the gold answer; the last turn gets the outcome",
    formula="A_ik = sum_{l>=k} gamma^(l-k) norm_pool(r)_il, r_k = p_k - p_{k-1}, r_T = R",
    paper="2510.14967",
    defaults={"gamma": 1.0, "deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0 where all turn rewards agree; else what the gains tell apart",
    needs=("answer_probability",),
    annotators=("answer_probability",),
    build=build_igpo,
)
