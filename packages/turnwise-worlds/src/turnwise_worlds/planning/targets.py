"""Derive the values of states from a finished tree: targets for a value model. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from turnwise_worlds.planning.tree import Node, Place

Kind = Literal["progress", "reached"]


def compute_targets(
    root: Node[Place], is_right: Callable[[Node[Place]], bool], *, kind: Kind
) -> Mapping[Node[Place], float]:
    """The target of every state: `compute_progress`, or for "reached" 1 if a right end was found below, else 0.

    "reached" is a lower bound of the exact value: too low if the search missed a path, never too high.
    """
    if kind == "progress":
        return compute_progress(root, is_right)
    steps = _count_steps(root, is_right)
    return {node: float(node in steps) for node in root.walk()}


def compute_progress(root: Node[Place], is_right: Callable[[Node[Place]], bool]) -> dict[Node[Place], float]:
    """The weighted rewards of ReST-MCTS* (arXiv 2406.03816, section 3.1), summed along the way: the quality value.

    `v_0 = 0` and `v_k = max(0, v_{k-1} + w_k)` with `w_k = (1 - v_{k-1}) / (m_k + 1) * (1 - 2 r_k)`. `r_k` is 0 if a
    right end was found below the state, else 1. `m_k` is the number of replies that are still needed: for a state with
    a right end below, to the nearest one; for any other, as in the released code, `m_k + 1` is one more than the
    replies that its nearest ancestor with a right end below needs. On the path to a right end after K replies the
    values are 1/K, 2/K, ..., 1. Without a right end in the tree there are no targets: an empty mapping.

    Deviation: in the paper a process reward model may also give `r_k`; here only the tree does.
    """
    steps = _count_steps(root, is_right)
    if root not in steps:
        return {}
    values, divisors = {root: 0.0}, {node: needed + 1 for node, needed in steps.items()}
    for node in root.walk()[1:]:
        assert node.parent is not None
        before = values[node.parent]
        divisor = divisors.setdefault(node, divisors[node.parent])
        values[node] = max(0.0, before + (1 - before) / divisor * (1 if node in steps else -1))
    return values


def _count_steps(root: Node[Place], is_right: Callable[[Node[Place]], bool]) -> dict[Node[Place], int]:
    """Replies from every state to the nearest right end below; states without one are left out."""
    steps: dict[Node[Place], int] = {}
    for node in reversed(root.walk()):
        known = [steps[child] + 1 for child in node.children if child in steps]
        if node.has_ended and is_right(node):
            steps[node] = 0
        elif known:
            steps[node] = min(known)
    return steps
