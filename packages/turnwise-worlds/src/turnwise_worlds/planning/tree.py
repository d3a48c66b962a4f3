"""The tree of a search: which state gets the next reply, and how its value is backed up to those above. Pure.

A reply is an arm of the state it is given in. All replies that have not been seen yet form one more arm: the policy's
probability of them is known exactly, as an engine reports the log-probability of every token it sampled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Place = TypeVar("Place")
MIN_UNSEEN = 1e-4
"""Unseen replies whose total probability is below this count as seen."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Node(Generic[Place]):
    """A state in the search tree."""

    place: Place
    parent: Node[Place] | None = None
    prior: float = 1.0
    """Probability of the replies that lead here from the parent."""
    value: float = 0.0
    """The value function's score of the state, between 0 and 1."""
    has_ended: bool = False
    """Whether the state is an end, at which no reply can be given."""
    children: list[Node[Place]] = field(default_factory=list)
    num_proposals: int = 0
    """Replies sampled here, including those that led to a known state."""
    visits: int = 0
    total: float = 0.0
    """Sum of the values of the states reached from here, its own included."""

    @property
    def depth(self) -> int:
        """Number of replies before it."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def mean(self) -> float:
        """Mean value of the states reached from here."""
        return self.total / self.visits if self.visits else self.value

    @property
    def unseen(self) -> float:
        """Probability of the replies that were not seen here."""
        return max(0.0, 1.0 - sum(child.prior for child in self.children))

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing new can be found here."""
        if self.has_ended:
            return True
        return self.unseen < MIN_UNSEEN and all(child.is_exhausted for child in self.children)

    def walk(self) -> list[Node[Place]]:
        """This state and everything below, parents first."""
        return [self, *(node for child in self.children for node in child.walk())]


def select(root: Node[Place], exploration: float) -> Node[Place]:
    """The state that gets the next reply: PUCT (AlphaZero, arXiv 1712.01815) from the root down.

    An arm's score is `Q + exploration * P * sqrt(N) / (1 + n)`, N the visits of the state. A child has its mean value,
    its prior and its visits. The arm of unseen replies has the state's mean value, their probability and the number of
    replies sampled here; if it wins, the search stops at this state. Exhausted children are left out.

    Deviations: AlphaZero lists all moves, and N is the sum of its arms' visits; ReST-MCTS* (arXiv 2406.03816) expands
    three replies at once and has no prior (UCT).
    """
    node = root
    while True:
        spread = exploration * math.sqrt(max(1, node.visits))
        best = node
        score = -math.inf
        if node.unseen >= MIN_UNSEEN:
            score = node.mean + spread * node.unseen / (1 + node.num_proposals)
        for child in node.children:
            if child.is_exhausted:
                continue
            of_child = child.mean + spread * child.prior / (1 + child.visits)
            if of_child > score:
                best, score = child, of_child
        if best is node:
            return node
        node = best


def descend(root: Node[Place]) -> Node[Place]:
    """Go from the root always to the child with the greatest value that can still get a reply, as far as there is
    one."""
    node = root
    while True:
        children = [child for child in node.children if not child.has_ended]
        if not children:
            return node
        node = max(children, key=lambda child: child.value)


def back_up(node: Node[Place], value: float) -> None:
    """Add a value to a state and to every one above it: means weighted by visits, as in ReST-MCTS*."""
    at: Node[Place] | None = node
    while at is not None:
        at.visits += 1
        at.total += value
        at = at.parent
