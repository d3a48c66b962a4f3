"""Compares leaves of search trees within their tree and across trees (Tree-GRPO, arXiv 2509.21240).

Leaves are separate trajectories, each with all turns from the root; a turn above a fork therefore appears in several of
them. `share_advantages` determines what its copies get. A trainer that trains only one copy must give it the sum over
all of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal, get_args

from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory, group_indices
from turnwise.algorithms.options import check_choice
from turnwise.algorithms.turns.groups import TurnAdvantages, build_group_credit, check_comparison, turn_rewards

Sharing = Literal["once", "mean", "each"]
"""What the c copies of a shared turn get: "once" the mean over its leaves divided by c, so that all copies together
weigh as one turn; "mean" the mean in every copy; "each" its own leaf's advantage in every copy. With "mean" and "each"
the turn weighs c times."""


def compute_tree_advantages(
    rewards: Sequence[float | None],
    trees: Sequence[str | None],
    *,
    intra: float = 1.0,
    inter: float = 1.0,
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> list[float | None]:
    """`A_i = intra * norm_tree(R)_i + inter * norm_group(R)_i` for the leaves of one group.

    `norm_tree` compares a leaf with the leaves of its tree, `norm_group` with all leaves of the group. This is the
    paper's sum; its released code normalises by group and then by tree, which leaves only the within-tree part (the
    case inter = 0).

    Args:
        rewards: one per leaf; None leaves it out of both comparisons.
        trees: one key per leaf; None is a tree of its own.

    Returns:
        One per leaf, None where the reward was None. A leaf alone in its tree gets exactly 0 from the first part, so
        with one leaf per tree and inter = 1 this is GRPO; a group of one leaf and a constant group get exactly 0.

    Raises:
        ValueError: a reward is not finite, or epsilon is negative.
    """
    advantages = [
        None if value is None else inter * value
        for value in compute_grpo_advantages(rewards, deviation=deviation, epsilon=epsilon)
    ]
    keys = [f"alone {i}" if tree is None else f"tree {tree}" for i, tree in enumerate(trees)]
    for leaves in group_indices(keys):
        within = compute_grpo_advantages([rewards[i] for i in leaves], deviation=deviation, epsilon=epsilon)
        for i, value in zip(leaves, within, strict=True):
            before = advantages[i]
            if before is not None and value is not None:
                advantages[i] = before + intra * value
    return advantages


def find_shared_turns(leaves: Sequence[CreditTrajectory]) -> list[list[int]]:
    """Return a number per turn of every leaf, equal if leaves of one tree contain the same turn.

    Turns with equal `CreditTurn.node` are the same. If it is None, turn k of two leaves is the same if turns 0 to k
    agree in state key, number of tokens and log-probabilities at sampling, bit for bit: copies of one sampling always
    agree, two samplings only if they drew the same tokens. A turn without `logprobs` is then never shared.
    """
    numbers: dict[Hashable, int] = {}
    rows = []
    for i, leaf in enumerate(leaves):
        path: Hashable = ("alone", i) if leaf.tree is None else ("tree", leaf.tree)
        row = []
        for k, turn in enumerate(leaf.turns):
            drawn = (i, k) if turn.logprobs is None else turn.logprobs.tobytes()
            parent = numbers.setdefault(path, len(numbers))
            path = (parent, turn.state, turn.num_tokens, drawn) if turn.node is None else (parent, turn.node)
            row.append(numbers.setdefault(path, len(numbers)))
        rows.append(row)
    return rows


def share_advantages(
    advantages: Sequence[float], shared: Sequence[Sequence[int]], *, sharing: Sharing = "once"
) -> TurnAdvantages:
    """Convert leaf advantages to turns, treating the copies of a shared turn as `sharing` specifies.

    Dividing by the number of copies (rather than training one copy only) keeps the result independent of the order of
    the leaves. What a loss divides by (tokens, sequences) still counts every copy.
    """
    if sharing == "each":
        return [[value] * len(row) for value, row in zip(advantages, shared, strict=True)]
    below: dict[int, list[float]] = {}
    for value, row in zip(advantages, shared, strict=True):
        for number in row:
            below.setdefault(number, []).append(value)
    means = {number: math.fsum(values) / len(values) for number, values in below.items()}
    return [[means[number] / (len(below[number]) if sharing == "once" else 1) for number in row] for row in shared]


def build_tree(
    *,
    intra: float = 1.0,
    inter: float = 1.0,
    sharing: Sharing = "once",
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> CreditFunction:
    """`compute_tree_advantages` of the total rewards in each group by `CreditTrajectory.tree`, then `share_advantages`.

    Raises ValueError for a `sharing` that does not exist.
    """
    check_choice("sharing", sharing, get_args(Sharing))
    check_comparison(deviation=deviation, epsilon=epsilon)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        trees = [member.tree for member in members]
        totals = [sum(turn_rewards(member), outcome) for member, outcome in zip(members, outcomes, strict=True)]
        leaves = compute_tree_advantages(totals, trees, intra=intra, inter=inter, deviation=deviation, epsilon=epsilon)
        return share_advantages([value or 0.0 for value in leaves], find_shared_turns(members), sharing=sharing)

    return build_group_credit(compute)


TREE = CreditMethod(
    name="tree",
    aliases=("Tree-GRPO",),
    summary="leaves compared within their search tree and across the group; a shared turn weighs as one turn",
    formula="A_i = intra * norm_tree(R)_i + inter * norm_group(R)_i; shared turn: mean over its leaves / copies",
    paper="2509.21240",
    defaults={"intra": 1.0, "inter": 1.0, "sharing": "once", "deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0",
    needs=("tree", "logprobs"),
    compares="leaves",
    branches="random",
    build=build_tree,
)
