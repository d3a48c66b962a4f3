"""Find out what makes self-play at Kuhn poker converge: only the estimators, on a table of logits instead of a model.

    python benchmarks/self_play.py [--seeds 10]

Each step plays every deal 8 or 32 times, credits each move with the player's return minus a baseline, adds the gradient
of the entropy, and takes a step of Adam whose rate falls linearly to 0. Prints the exploitability of the last policy
and of the average over the second half: mean and maximum over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise_worlds.games.games import GAMES
from turnwise_worlds.games.graph import build_graph
from turnwise_worlds.games.values import Policy, average_policies, compute_exploitability

Floats = NDArray[np.float64]
GRAPH = build_graph(GAMES["kuhn"])
STEPS, LR = 200, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One setting."""

    name: str
    entropy: float = 0.2
    games: int = 8
    """Games played of each deal per step."""
    momentum: float = 0.0
    """beta1 of Adam."""
    baseline: str = "deal"
    """"deal": the mean over the other games of the same cards; "role": RAE's running mean."""
    learners: tuple[int, ...] = (0, 1)
    """Players that learn; a player that does not learn plays at random."""


ARMS = (
    Arm(name="entropy, no momentum, baseline of the deal"),
    Arm(name="32 games of a deal instead of 8", games=32),
    Arm(name="32 games, half the entropy", games=32, entropy=0.1),
    Arm(name="half the entropy", entropy=0.1),
    Arm(name="momentum 0.9", momentum=0.9),
    Arm(name="RAE instead", baseline="role"),
    Arm(name="no entropy", entropy=0.0),
    Arm(name="no entropy, momentum 0.9, RAE", entropy=0.0, momentum=0.9, baseline="role"),
    Arm(name="player 0 against random moves", learners=(0,)),
    Arm(name="player 1 against random moves", learners=(1,)),
)


def list_paths(node: int) -> list[tuple[list[tuple[int, int]], float]]:
    """Every path from a node to an end: information sets with the moves made there, and the return of player 0."""
    place = GRAPH.nodes[node].place
    if place is None:
        return [([], GRAPH.nodes[node].returns[0])]
    children = enumerate(GRAPH.nodes[node].children)
    return [([(place, move), *path], won) for move, child in children for path, won in list_paths(child)]


PATHS = [list_paths(node) for node, _ in GRAPH.deals]


def to_policy(logits: Floats) -> Floats:
    """`[information sets, 2]` probabilities."""
    shares: Floats = 1 / (1 + np.exp(logits[:, ::-1] - logits))
    return shares


def compute_gradient(logits: Floats, arm: Arm, random: np.random.Generator, running: float) -> tuple[Floats, float]:
    """The gradient of return and entropy with respect to the logits, per move made, and the mean return of player 0."""
    policy, push, visits, total = to_policy(logits), np.zeros_like(logits), np.zeros(len(logits)), 0.0
    for paths in PATHS:
        chances = np.array([np.prod([policy[place, move] for place, move in path]) for path, _ in paths])
        counts = random.multinomial(arm.games, chances / chances.sum())
        won = np.array([won for _, won in paths])
        mean = counts @ won / arm.games
        total += mean / len(PATHS)
        for (path, value), count in zip(paths, counts, strict=True):
            baseline = running if arm.baseline == "role" else (arm.games * mean - value) / (arm.games - 1)
            for place, move in path:
                player = GRAPH.information_sets[place].mover
                if player in arm.learners:
                    push[place, move] += count * (value - baseline) * (1 if player == 0 else -1)
                    visits[place] += count
    logs = np.log(policy)
    surprise = -policy * (logs - (policy * logs).sum(1, keepdims=True))
    gradient = push - policy * push.sum(1, keepdims=True) + arm.entropy * visits[:, None] * surprise
    return gradient / visits.sum(), total


def train(arm: Arm, seed: int) -> tuple[float, float]:
    """Exploitability of the last policy and of the average of the second half."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 0.1, (len(GRAPH.information_sets), 2))
    first, second, running = np.zeros_like(logits), np.zeros_like(logits), 0.0
    kept: list[Policy] = []
    for step in range(STEPS):
        gradient, total = compute_gradient(logits, arm, random, running)
        running = 0.95 * running + 0.05 * total
        first = arm.momentum * first + (1 - arm.momentum) * gradient
        second = 0.95 * second + 0.05 * gradient**2
        scale = np.sqrt(second / (1 - 0.95 ** (step + 1))) + 1e-8
        logits = logits + LR * (1 - step / STEPS) * first / (1 - arm.momentum ** (step + 1)) / scale
        if step >= STEPS // 2:
            kept.append([(float(a), float(b)) for a, b in to_policy(logits)])
    return compute_exploitability(GRAPH, kept[-1]), compute_exploitability(GRAPH, average_policies(GRAPH, kept))


def describe(values: Sequence[float]) -> str:
    """Mean and maximum."""
    return f"{np.mean(values):.3f} (largest {max(values):.3f})"


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    print("| | last policy | averaged policy |\n|---|---|---|")
    for arm in ARMS:
        last, averaged = zip(*(train(arm, seed) for seed in seeds), strict=True)
        print(f"| {arm.name} | {describe(last)} | {describe(averaged)} |", flush=True)


if __name__ == "__main__":
    main()
