"""Labels of steps beside the exact success probability, in the worlds of the credit laboratory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from laboratory.exact import Values, compute_values
from laboratory.measure import compute_mean_interval
from laboratory.paths import Paths, sample_groups, sample_paths
from laboratory.policy import DECIDING, TOKENS_PER_TURN, build_policy, to_probabilities
from laboratory.world import World
from laboratory.worlds import WORLDS

from turnwise.core.seeds import derive_seed
from turnwise_rewards.reward_models.calibration import correlate
from turnwise_rewards.reward_models.labels import average_equal, share_right
from turnwise_rewards.reward_models.quality import compute_quality

NUM_GROUPS, GROUP_SIZE, NUM_FORKS = 24, 4, 4
GAMMA = 0.95
SUCCESS = 0.5
"""Success probability of the policies whose steps are labelled."""


def measure_worlds(num_seeds: int) -> list[dict[str, Any]]:
    """One row per world and method: bias and correlation with 95% intervals over seeds, tokens per label."""
    rows = []
    for name, build in WORLDS.items():
        seeds = [measure_labels(build(), seed) for seed in range(num_seeds)]
        for method in seeds[0]:
            bias, correlation, label, truth, tokens = zip(*(each[method] for each in seeds), strict=True)
            known = [value for value in correlation if value is not None]
            rows.append(
                {
                    "world": name,
                    "method": method,
                    "bias": compute_mean_interval(bias),
                    "correlation": compute_mean_interval(known) if known else None,
                    "mean_label": float(np.mean(label)),
                    "mean_exact": float(np.mean(truth)),
                    "tokens_per_label": float(np.mean(tokens)),
                    "seeds": num_seeds,
                }
            )
    return rows


def measure_labels(world: World, seed: int) -> dict[str, tuple[float, float | None, float, float, float]]:
    """Mean error, correlation, mean label, mean exact value and tokens per label of every method, for turns after which
    the attempt went on."""
    rng = np.random.default_rng(derive_seed(seed, "labels", world.name))
    tokens = to_probabilities(build_policy(world, success=SUCCESS, rng=rng))
    values = compute_values(world, tokens[:, DECIDING])
    paths = sample_groups(world, tokens, NUM_GROUPS, GROUP_SIZE, rng)
    rows, turns = np.nonzero(paths.taken)
    goes_on = np.zeros_like(paths.taken)
    goes_on[:, :-1] = paths.taken[:, 1:]
    kept = goes_on[rows, turns]
    exact = values.states[turns + 1, paths.next_states[rows, turns]]
    forks = sample_paths(
        world,
        tokens,
        np.repeat(paths.next_states[rows[kept], turns[kept]], NUM_FORKS),
        np.repeat(turns[kept] + 1, NUM_FORKS),
        rng,
    )
    own = len(rows) * TOKENS_PER_TURN / int(kept.sum())
    with_forks = own + int(forks.taken.sum()) * TOKENS_PER_TURN / int(kept.sum())
    found = {}
    for name, labels in label_turns(paths, forks, values).items():
        given = labels[kept]
        known = ~np.isnan(given)
        given, true = given[known], exact[kept][known]
        cost = with_forks if name in ("soft", "hard", "quality") else own
        found[name] = (
            float((given - true).mean()),
            correlate(given, true),
            float(given.mean()),
            float(true.mean()),
            cost,
        )
    return found


def label_turns(paths: Paths, forks: Paths, values: Values) -> dict[str, np.ndarray]:
    """Labels of all turns by method, in the order of attempts and turns; NaN where there is none."""
    rows, turns = np.nonzero(paths.taken)
    lengths = paths.taken.sum(axis=1)
    left = lengths[rows] - 1 - turns
    outcome = paths.outcomes[rows]
    ended = forks.outcomes.reshape(-1, NUM_FORKS) > 0.5
    place = np.cumsum(left > 0) - 1
    shares = {
        hard: np.array(
            [
                share_right(list(ended[at]), hard=hard) if more else right
                for at, more, right in zip(place, left > 0, outcome, strict=True)
            ],
            dtype=np.float64,
        )
        for hard in (False, True)
    }
    actions = paths.tokens[rows, turns, DECIDING]
    keys = list(zip(paths.groups[rows], paths.states[rows, turns], actions, strict=True))
    return {
        "soft": shares[False],
        "hard": shares[True],
        "outcome of the attempt": outcome,
        "returns": np.array(average_equal(keys, list(outcome))),
        f"returns, gamma {GAMMA}": np.array(average_equal(keys, list(GAMMA**left * outcome))),
        f"returns, gamma {GAMMA}^t": np.array(average_equal(keys, list(GAMMA**turns * outcome))),
        "quality": np.array(list(iterate_quality(paths, forks, rows, left > 0))),
    }


def iterate_quality(paths: Paths, forks: Paths, rows: np.ndarray, more: np.ndarray) -> Iterator[float]:
    """Quality values of the turns of every attempt, in the tree with its continuations."""
    lengths = forks.taken.sum(axis=1).reshape(-1, NUM_FORKS)
    right = forks.outcomes.reshape(-1, NUM_FORKS) > 0.5
    place = 0
    for row in range(len(paths.states)):
        count = int((rows == row).sum())
        parents: list[int | None] = [index - 1 if index else None for index in range(count)]
        ends = {count - 1: bool(paths.outcomes[row])}
        for index in range(count - 1):
            for length, success in zip(lengths[place], right[place], strict=True):
                parents += [index, *range(len(parents), len(parents) + int(length) - 1)]
                ends[len(parents) - 1] = bool(success)
            place += 1
        values = compute_quality(parents, ends)
        yield from (values.get(index, np.nan) for index in range(count))
