"""Exact values of policies: expected returns, best responses, exploitability, averages of policies.

A policy is tabular: for every information set of the graph, in order, the probability of each legal move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from turnwise_worlds.games.game import Returns
from turnwise_worlds.games.graph import GameGraph

Choice = tuple[float, ...]
"""The probability of each move in an information set."""
Policy = Sequence[Choice]
"""A `Choice` for every information set of a graph, for both players."""


def uniform_policy(graph: GameGraph) -> Policy:
    """Return the policy with every legal move equally likely."""
    return [(1 / len(place.moves),) * len(place.moves) for place in graph.information_sets]


def compute_value(
    graph: GameGraph, first: Policy, second: Policy, worth: Callable[[Returns], float] = lambda returns: returns[0]
) -> float:
    """Compute the expectation of `worth` at the end (by default player 0's return) if player 0 plays `first` and player
    1 plays `second`."""
    values: list[float] = []
    for node in graph.nodes:
        if node.place is None:
            values.append(worth(node.returns))
        else:
            policy = second if graph.information_sets[node.place].mover else first
            pairs = zip(policy[node.place], node.children, strict=True)
            values.append(sum(share * values[child] for share, child in pairs))
    return sum(share * values[node] for node, share in graph.deals)


def compute_reach(graph: GameGraph, policy: Policy, *, player: int | None, deals: bool = True) -> list[float]:
    """Compute for every node the probability of reaching it, counting only the moves of `player` (None: of both) under
    `policy`, while all other moves lead there; `deals` says whether the deal's probability counts too.

    If several paths lead to a node, their probabilities are added.
    """
    reach = [0.0] * len(graph.nodes)
    for node, share in graph.deals:
        reach[node] += share if deals else 1.0
    for index in reversed(range(len(graph.nodes))):
        place = graph.nodes[index].place
        if place is not None:
            chosen = player is None or graph.information_sets[place].mover == player
            for share, child in zip(policy[place], graph.nodes[index].children, strict=True):
                reach[child] += reach[index] * (share if chosen else 1.0)
    return reach


def compute_best_response(graph: GameGraph, policy: Policy, *, player: int) -> float:
    """Compute the most that `player` can expect against `policy` of the other player.

    At each information set one move is chosen for all its positions: the best one, weighted by how likely deal and
    opponent lead to them. Requires perfect recall.
    """
    reach = compute_reach(graph, policy, player=1 - player)

    @cache
    def choose(place: int) -> int:
        found = graph.information_sets[place]
        sums = [
            sum(reach[node] * evaluate(graph.nodes[node].children[move]) for node in found.nodes)
            for move in range(len(found.moves))
        ]
        return sums.index(max(sums))

    @cache
    def evaluate(index: int) -> float:
        node = graph.nodes[index]
        if node.place is None:
            return node.returns[player]
        if graph.information_sets[node.place].mover == player:
            return evaluate(node.children[choose(node.place)])
        pairs = zip(policy[node.place], node.children, strict=True)
        return sum(share * evaluate(child) for share, child in pairs)

    return sum(share * evaluate(node) for node, share in graph.deals)


def compute_exploitability(graph: GameGraph, policy: Policy) -> float:
    """Compute half of what best responses to both players earn together: 0 in equilibrium (zero-sum games only).

    This is OpenSpiel's `exploitability`; its `nash_conv` is twice as much.
    """
    return sum(compute_best_response(graph, policy, player=player) for player in (0, 1)) / 2


def average_policies(graph: GameGraph, policies: Sequence[Policy]) -> Policy:
    """Return the policy equivalent to playing one of `policies`, drawn before the game (Kuhn 1953).

    At each information set it is the mean, weighted by how likely each policy's own earlier moves lead there; the plain
    mean if none does. Raises ValueError for a graph that is not a tree: there the same information set may be reached
    by paths of different probability, and no such policy exists.
    """
    if not graph.is_tree:
        raise ValueError(
            f"{graph.name}: some positions can be reached in more than one way, so policies cannot be averaged"
        )
    weights = [[compute_reach(graph, policy, player=player, deals=False) for player in (0, 1)] for policy in policies]
    averaged = []
    for place, found in enumerate(graph.information_sets):
        own = [reach[found.mover][found.nodes[0]] for reach in weights]
        total = sum(own)
        shares = [weight / total for weight in own] if total else [1 / len(own)] * len(own)
        averaged.append(
            tuple(
                sum(share * policy[place][move] for share, policy in zip(shares, policies, strict=True))
                for move in range(len(found.moves))
            )
        )
    return averaged


def compute_seat_mean(graph: GameGraph, policy: Policy, opponent: Policy) -> float:
    """Compute the mean return of `policy` against `opponent` over both seats."""
    first = compute_value(graph, policy, opponent)
    return (first + compute_value(graph, opponent, policy, lambda returns: returns[1])) / 2


def compute_win_rate(graph: GameGraph, policy: Policy, opponent: Policy) -> float:
    """Compute the probability of winning plus half that of a draw, over both seats. With stakes it means little:
    perfect play of Kuhn poker folds, and wins fewer games against random moves than it loses."""
    first = compute_value(graph, policy, opponent, lambda returns: _win(returns[0], returns[1]))
    second = compute_value(graph, opponent, policy, lambda returns: _win(returns[1], returns[0]))
    return (first + second) / 2


def _win(mine: float, theirs: float) -> float:
    return 0.5 + ((mine > theirs) - (mine < theirs)) / 2
