"""The step- and turn-level methods by name; `algorithms/credit_table.py` merges them with the trajectory-level ones."""

from __future__ import annotations

from turnwise.algorithms.credit import CreditMethod
from turnwise.algorithms.turns.branching import build_arpo
from turnwise.algorithms.turns.discount import build_turn_discount
from turnwise.algorithms.turns.gigpo import build_gigpo
from turnwise.algorithms.turns.igpo import build_igpo
from turnwise.algorithms.turns.multi_turn_grpo import build_multi_turn_grpo
from turnwise.algorithms.turns.potential import build_potential
from turnwise.algorithms.turns.prime import build_prime
from turnwise.algorithms.turns.process_scores import build_process_scores
from turnwise.algorithms.turns.schedule import build_scheduled_mix
from turnwise.algorithms.turns.spa import build_spa
from turnwise.algorithms.turns.tree import build_tree
from turnwise.algorithms.turns.vine import build_vine
from turnwise.algorithms.vspo import build_vspo

_METHODS = (
    CreditMethod(
        name="multi_turn_grpo",
        summary=(
            "outcome and turn rewards, each compared within the group; a turn gets the outcome and the turn "
            "rewards from it on"
        ),
        formula="A_ik = norm(R)_i + coefficient * sum_{j>=k} gamma^(j-k) norm(r)_ij",
        paper="2505.11821",
        defaults={"coefficient": 1.0, "gamma": 1.0, "deviation": "sample", "epsilon": 1e-4},
        group_of_one="0",
        constant_group="0 where turn rewards agree at every turn index; else the turn part",
        build=build_multi_turn_grpo,
    ),
    CreditMethod(
        name="gigpo",
        summary="GRPO over episodes plus a comparison of the returns of all turns taken from the same state",
        formula="A_ik = norm(R)_i + omega * (G_ik - mean_s G) / F(s)",
        paper="2505.10978",
        defaults={"omega": 1.0, "gamma": 0.95, "deviation": "none", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0 in the episode part; the step part where returns from one state differ (gamma < 1)",
        needs=("state",),
        build=build_gigpo,
    ),
    CreditMethod(
        name="tree",
        summary="leaves compared within their search tree and across the group; a shared turn weighs as one turn",
        formula="A_i = intra * norm_tree(R)_i + inter * norm_group(R)_i; shared turn: mean over its leaves / copies",
        paper="2509.21240",
        defaults={"intra": 1.0, "inter": 1.0, "sharing": "once", "deviation": "sample", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0",
        needs=("tree", "logprobs"),
        build=build_tree,
    ),
    CreditMethod(
        name="vine",
        summary="change of the Monte-Carlo state value over each turn; needs an environment that can fork",
        formula="A_k = r_k + V(s_{k+1}) - V(s_k), V = 0 after the last turn",
        paper="2410.01679",
        group_of_one="like any other: no group is involved",
        constant_group="like any other: 0 only where a turn changes no value",
        needs=("state_value",),
        build=build_vine,
    ),
    CreditMethod(
        name="igpo",
        summary="how much each turn raised the probability of the gold answer; the last turn gets the outcome",
        formula="A_ik = sum_{l>=k} gamma^(l-k) norm_pool(r)_il, r_k = p_k - p_{k-1}, r_T = R",
        paper="2510.14967",
        defaults={"gamma": 1.0, "deviation": "sample", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0 where all turn rewards agree; else what the gains tell apart",
        needs=("answer_probability",),
        build=build_igpo,
    ),
    CreditMethod(
        name="spa",
        summary="a learned split of the outcome over the turns, plus grounding, compared at the same turn index",
        formula="A_ik = sum_{j>=k} gamma^(j-k) norm(alpha c + beta g)_ij",
        paper="2505.20732",
        defaults={"alpha": 1.0, "beta": 1.0, "conserve": False, "gamma": 1.0, "deviation": "sample", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0 where predicted contributions agree at every turn index",
        needs=("progress",),
        build=build_spa,
    ),
    CreditMethod(
        name="prime",
        summary=(
            "implicit per-token process rewards and the outcome, leave-one-out, as rewards-to-go, whitened over "
            "the batch"
        ),
        formula="A = whiten(sum_{l>=t} c_i (r_l - loo mean r) + c_o (R - loo mean R))",
        paper="2502.01456",
        defaults={
            "implicit_coefficient": 1.0,
            "outcome_coefficient": 1.0,
            "gamma": 1.0,
            "whitening": "full",
            "epsilon": 1e-8,
        },
        group_of_one="0 before whitening",
        constant_group="0 in the outcome part; the implicit part remains",
        needs=("implicit_rewards",),
        build=build_prime,
    ),
    CreditMethod(
        name="process_scores",
        summary="a process reward model's scores, pooled over the group's turns, summed from each turn on",
        formula="A_ik = sum_{l>=k} gamma^(l-k) norm_pool(s)_il + outcome_coefficient * norm(R)_i",
        paper="2402.03300",
        defaults={"outcome_coefficient": 0.0, "gamma": 1.0, "deviation": "sample", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0 in the outcome part; the process part remains where scores differ",
        needs=("process_score",),
        build=build_process_scores,
    ),
    CreditMethod(
        name="potential",
        summary="turn rewards shaped by a potential, which adds -Phi(s_0) in total whatever is done",
        formula="A_ik = gamma^(T-1-k) norm(R)_i + coefficient * sum_{j>=k} gamma^(j-k) norm(r + gamma Phi' - Phi)_ij",
        paper="Ng, Harada and Russell 1999",
        defaults={"gamma": 1.0, "coefficient": 1.0, "deviation": "none", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0 where potentials and turn rewards agree at every turn index",
        needs=("potential",),
        build=build_potential,
    ),
    CreditMethod(
        name="turn_discount",
        summary="GRPO whose advantage fades with the distance from the last turn, plus discounted turn rewards",
        formula="A_ik = gamma^(T-1-k) norm(R)_i + sum_{j>=k} gamma^(j-k) norm(r)_ij",
        paper="textbook discounting, after comparison (ours)",
        defaults={"gamma": 0.95, "deviation": "sample", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0 where turn rewards agree at every turn index",
        build=build_turn_discount,
    ),
    CreditMethod(
        name="arpo",
        summary=(
            "GRPO over all leaves of entropy-guided branching; turns above a fork get each leaf's advantage, or "
            "their mean"
        ),
        formula="A_i = norm_group(R)_i; shared turn by `sharing`: each, mean or once",
        paper="2507.19849",
        defaults={"sharing": "each", "deviation": "sample", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0",
        needs=("tree", "logprobs"),
        build=build_arpo,
    ),
    CreditMethod(
        name="scheduled_mix",
        summary=(
            "GRPO on a reward that moves from step scores to milestones to the outcome, by step or by measured success"
        ),
        formula="early 0.7 mean(steps) + 0.3 R; middle 0.3 mean(milestones) + 0.7 R; late R",
        paper="an illustration beside 2512.07478, not the paper's method",
        defaults={
            "switch": "success",
            "boundaries": (0.3, 0.7),
            "success_outcome": 1.0,
            "memory": 0.9,
            "deviation": "sample",
            "epsilon": 1e-6,
        },
        group_of_one="0",
        constant_group="0 where the mixed rewards agree; always in the late stage",
        build=build_scheduled_mix,
    ),
    CreditMethod(
        name="vspo",
        summary="GRPO; places of groups without signal go to further, decayed uses of groups drawn by task value",
        formula="V = (R_max - mean) * std; A_i = sum over uses k of clip(norm(R)_i k^-decay), first use unclipped",
        paper="2512.07478 (refill, decay and clip are our reading)",
        defaults={"max_reward": 1.0, "decay": 1.0, "clip": 1.0, "seed": 0, "deviation": "sample", "epsilon": 1e-6},
        group_of_one="0",
        constant_group="0",
        build=build_vspo,
    ),
)

TURN_METHODS: dict[str, CreditMethod] = {method.name: method for method in _METHODS}
"""Name to method."""
