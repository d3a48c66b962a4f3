"""The table of credit methods, and how a name and its options become a checked function. Knows no recipe and no run."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from turnwise.algorithms.advantages.gae import build_gae
from turnwise.algorithms.advantages.gdpo import build_gdpo
from turnwise.algorithms.advantages.grpo import build_dr_grpo, build_grpo
from turnwise.algorithms.advantages.max_rl import build_max_rl
from turnwise.algorithms.advantages.opo import build_opo
from turnwise.algorithms.advantages.otb import build_otb
from turnwise.algorithms.advantages.pass_at_k import build_pass_at_k
from turnwise.algorithms.advantages.rae import RoleBaselineCredit
from turnwise.algorithms.advantages.reinforce import (
    build_reinforce,
    build_reinforce_plus_plus,
    build_reinforce_plus_plus_baseline,
)
from turnwise.algorithms.advantages.remax import build_remax
from turnwise.algorithms.advantages.rloo import build_rloo
from turnwise.algorithms.advantages.turn_gae import build_bilevel_gae, build_turn_gae
from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.turns.table import TURN_METHODS

TRAJECTORY_METHODS: dict[str, CreditMethod] = {
    method.name: method
    for method in (
        CreditMethod(
            name="reinforce",
            summary="the outcome itself, no baseline",
            formula="A = r",
            paper="Williams 1992",
            group_of_one="r",
            constant_group="r",
            build=build_reinforce,
        ),
        CreditMethod(
            name="reinforce_plus_plus",
            summary="discounted return per token, whitened over the batch",
            formula="A_t = whiten(sum_{k>=t} gamma^(k-t) (r_k - kl_coefficient * KL_k))",
            paper="2501.03262",
            defaults={"gamma": 1.0, "kl_coefficient": 0.0, "whitening": "full", "epsilon": 1e-8},
            group_of_one="as any trajectory",
            constant_group="as any trajectories; 0 if the whole batch is constant",
            build=build_reinforce_plus_plus,
        ),
        CreditMethod(
            name="reinforce_plus_plus_baseline",
            summary="outcome against the group's mean, whitened over the batch",
            formula="A = whiten(r - mean)",
            paper="2501.03262",
            defaults={"whitening": "full", "epsilon": 1e-8},
            group_of_one="0 before whitening",
            constant_group="0 before whitening",
            build=build_reinforce_plus_plus_baseline,
        ),
        CreditMethod(
            name="grpo",
            summary="outcome against the group's mean, in deviations",
            formula="A = (r - mean) / (std + epsilon)",
            paper="2402.03300",
            defaults={"deviation": "sample", "epsilon": 1e-6},
            group_of_one="0",
            constant_group="0",
            build=build_grpo,
        ),
        CreditMethod(
            name="dr_grpo",
            summary="outcome against the group's mean",
            formula="A = r - mean",
            paper="2503.20783",
            group_of_one="0",
            constant_group="0",
            build=build_dr_grpo,
        ),
        CreditMethod(
            name="rloo",
            summary="outcome against the mean of the others",
            formula="A = r - mean of the others = n / (n - 1) (r - mean)",
            paper="2402.14740",
            group_of_one="0",
            constant_group="0",
            build=build_rloo,
        ),
        CreditMethod(
            name="opo",
            summary="outcome against the length-weighted mean of the group",
            formula="A = r - sum(L r) / sum(L)",
            paper="2505.23585",
            group_of_one="0",
            constant_group="0",
            build=build_opo,
        ),
        CreditMethod(
            name="otb",
            summary=(
                "return per token against the group's mean there, weighted by gradient gathered; none where one "
                "member is left"
            ),
            formula="A_t = G_t - sum(W_t G_t) / sum(W_t), W_t = sum_{j<=t} (1 - 2 p_j + sum_v p_jv^2)",
            paper="2602.07078",
            group_of_one="0",
            constant_group="0",
            needs=("logprobs", "squared_mass"),
            build=build_otb,
        ),
        CreditMethod(
            name="remax",
            summary="return against the greedy attempt's reward",
            formula="A_t = sum_{k>=t} r_k - r(greedy)",
            paper="2310.10505",
            group_of_one="r - r(greedy)",
            constant_group="r - r(greedy)",
            needs=("greedy_reward",),
            build=build_remax,
        ),
        CreditMethod(
            name="max_rl",
            summary="gradient of the log success rate; rewards must not be negative",
            formula="A = (r - mean) / mean",
            paper="2602.02710",
            group_of_one="0",
            constant_group="0",
            build=build_max_rl,
        ),
        CreditMethod(
            name="gdpo",
            summary="several rewards, each normalised by itself, then added",
            formula="A = whiten(sum_k w_k (r_k - mean_k) / (std_k + epsilon))",
            paper="2601.05242",
            defaults={"weights": None, "deviation": "sample", "epsilon": 1e-6, "normalization": "trajectories"},
            group_of_one="0 before the batch step",
            constant_group="0 before the batch step",
            needs=("parts",),
            build=build_gdpo,
        ),
        CreditMethod(
            name="pass_at_k",
            summary="what the best of the group adds to its maximum",
            formula="A = (max - max of the others) / (std + epsilon)",
            paper="2503.19595",
            defaults={"deviation": "sample", "epsilon": 1e-6},
            group_of_one="0",
            constant_group="0",
            build=build_pass_at_k,
        ),
        CreditMethod(
            name="rae",
            summary="outcome against a running baseline of its role, for self-play",
            formula="A = r - b_role; then b <- decay b + (1 - decay) mean(r of the role)",
            paper="2506.24119",
            defaults={"decay": 0.95},
            group_of_one="r - b",
            constant_group="r - b",
            needs=("role",),
            build=RoleBaselineCredit,
        ),
        CreditMethod(
            name="gae",
            summary="critic: return against value per token, across turns",
            formula="A_t = d_t + gamma lambda A_{t+1}; d_t = r_t + gamma V_{t+1} - V_t; whitened",
            paper="1506.02438",
            defaults={
                "gamma": 1.0,
                "gae_lambda": 1.0,
                "bootstrap": "zero",
                "kl_coefficient": 0.0,
                "whitening": "full",
                "epsilon": 1e-8,
            },
            group_of_one="as any trajectory",
            constant_group="as any trajectories",
            needs=("values",),
            build=build_gae,
        ),
        CreditMethod(
            name="turn_gae",
            summary="critic: one GAE step per turn",
            formula="A_k = d_k + gamma lambda A_{k+1}; d_k = r_k + gamma V_{k+1} - V_k; whitened over turns",
            paper="2512.17008",
            defaults={"gamma": 0.99, "gae_lambda": 0.9, "bootstrap": "zero", "whitening": "full", "epsilon": 1e-8},
            group_of_one="as any trajectory",
            constant_group="as any trajectories",
            needs=("values",),
            build=build_turn_gae,
        ),
        CreditMethod(
            name="bilevel_gae",
            summary="critic: GAE over turns, then over the tokens inside each",
            formula=(
                "A_k over turn ends with turn_gamma; inside turn k: token GAE with last reward A_k + V_end; whitened"
            ),
            paper="2504.20073",
            defaults={
                "turn_gamma": 0.95,
                "token_gamma": 1.0,
                "gae_lambda": 1.0,
                "bootstrap": "zero",
                "whitening": "full",
                "epsilon": 1e-8,
            },
            group_of_one="as any trajectory",
            constant_group="as any trajectories",
            needs=("values",),
            build=build_bilevel_gae,
        ),
    )
}
"""Methods that credit whole trajectories, and those that learn a critic."""

CREDIT_METHODS: dict[str, CreditMethod] = {**TRAJECTORY_METHODS, **TURN_METHODS}
"""Every credit method by name; the step- and turn-level ones are in `turns/table.py`."""


def build_credit(name: str, options: Mapping[str, object] | None = None) -> CheckedCredit:
    """The credit method `name` with `options` over its defaults, as a function that checks what it is given.

    Build it once per run: `rae` remembers its baselines (`CheckedCredit.state_dict`).

    Raises ValueError when the name or an option is unknown (with the nearest and all known ones) or an option's value
    is refused; what the function itself raises is said at `CheckedCredit`."""
    method = CREDIT_METHODS.get(name)
    if method is None:
        raise ValueError(_unknown("credit method", name, sorted(CREDIT_METHODS)))
    for option in options or {}:
        if option not in method.defaults:
            raise ValueError(_unknown(f"option of credit method {name!r}:", option, sorted(method.defaults)))
    return CheckedCredit(method=method, function=method.build(**{**method.defaults, **(options or {})}))


def _unknown(what: str, name: str, known: list[str]) -> str:
    nearest = get_close_matches(name, known, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"unknown {what} {name!r}{hint}; known: {', '.join(known) or 'none'}"
