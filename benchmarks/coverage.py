"""Do the intervals and tests of `turnwise.evaluation` keep what they promise? Prints the tables of docs/evaluation.md.

    python benchmarks/coverage.py [shares|clusters|bootstrap|differences|power|two_points|sequential ...]

Everything is simulated from fixed seeds, except `shares` and `power`, which are sums over all outcomes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.stats import bootstrap

from turnwise.evaluation.intervals import (
    Z_95,
    compute_clustered_intervals,
    compute_share_interval,
    compute_wilson_interval,
)
from turnwise.evaluation.paired import compute_differences, compute_mcnemar
from turnwise.evaluation.power import compute_detectable, compute_power
from turnwise.evaluation.sequential import MeanTest

Floats = NDArray[np.float64]
SHARES = (0.02, 0.05, 0.1, 0.3, 0.5)
"""Intervals are symmetric: a share of 98% is covered as one of 2%."""
FINE = np.arange(0.02, 0.9801, 0.005)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"


def binomial(count: int, share: float) -> Floats:
    """Probability of every number of successes, `[count + 1]`."""
    won = np.arange(count + 1.0)
    ways = special.gammaln(count + 1) - special.gammaln(won + 1) - special.gammaln(count - won + 1)
    return np.asarray(np.exp(ways + special.xlogy(won, share) + special.xlog1py(count - won, -share)))


def shares() -> None:
    print("## Independent results: how often the 95% interval holds the share, in percent (exact)\n")
    head = ["n", "interval", *(f"{percent(share, 0)}%" for share in SHARES), "least", "most", "in 93-97", "below 93"]
    rows = []
    for count in (5, 8, 10, 20, 30, 50, 100, 200, 500, 1000):
        for name, compute in (("Wilson", compute_wilson_interval), ("used", compute_share_interval)):
            bounds = np.array([compute(won, count) for won in range(count + 1)])

            def cover(share: float, bounds: Floats = bounds, count: int = count) -> float:
                held = (bounds[:, 0] <= share + 1e-12) & (share <= bounds[:, 1] + 1e-12)
                return float(binomial(count, share)[held].sum())

            fine = np.array([cover(share) for share in FINE])
            inside = ((fine >= 0.93) & (fine <= 0.97)).mean()
            rows.append(
                [
                    *(count, name, *(percent(cover(share)) for share in SHARES)),
                    *(percent(fine.min()), percent(fine.max()), percent(inside, 0), percent((fine < 0.93).mean(), 0)),
                ]
            )
    print_table(head, rows)


def draw_sums(
    random: np.random.Generator, repeats: int, clusters: int, size: int, share: float, related: float
) -> Floats:
    """Successes per cluster, `[repeats, clusters]`: beta-binomial with an intra-cluster correlation of `related`."""
    if related == 0:
        return random.binomial(size, share, (repeats, clusters)).astype(np.float64)
    scale = (1 - related) / related
    shares = random.beta(share * scale, (1 - share) * scale, (repeats, clusters))
    return random.binomial(size, shares).astype(np.float64)


CLUSTERS = ((5, 4), (5, 20), (5, 200), (10, 10), (10, 100), (20, 2), (20, 10), (20, 50), (50, 2), (50, 20), (100, 8),
            (200, 2), (200, 5))  # fmt: skip
"""Number of clusters, and results in each."""


def by_normal(sums: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """The interval without degrees of freedom: Wilson's for the effective number of results."""
    count, num_clusters = sizes.sum(), sums.shape[1]
    mean = sums.sum(axis=1) / count
    spread = ((sums - mean[:, None] * sizes) ** 2).sum(axis=1)
    variance = num_clusters / (num_clusters - 1) * spread / count**2
    with np.errstate(divide="ignore", invalid="ignore"):
        independent = np.clip(mean * (1 - mean) / variance, 1, count)
    independent = np.where(spread > 0, independent, np.where((mean > 0) & (mean < 1), count, num_clusters))
    centre = (mean + Z_95**2 / (2 * independent)) / (1 + Z_95**2 / independent)
    half = Z_95 / (1 + Z_95**2 / independent)
    half = half * np.sqrt(mean * (1 - mean) / independent + Z_95**2 / (4 * independent**2))
    return centre - half, centre + half


def clusters() -> None:
    repeats, random = 4000, np.random.default_rng(0)
    print(f"## Clusters: coverage in percent, normal quantile -> used ({repeats} simulations each)\n")
    rows = []
    low = []
    for (count, size), related in product(CLUSTERS, (0.0, 0.05, 0.2, 0.5)):
        cells = []
        for share in SHARES:
            sums, sizes = draw_sums(random, repeats, count, size, share, related), np.full(count, float(size))
            held = []
            for compute in (by_normal, compute_clustered_intervals):
                bottom, top = compute(sums, sizes)
                held.append(float(((bottom <= share + 1e-12) & (share <= top + 1e-12)).mean()))
            cells.append(f"{percent(held[0], 0)} -> {percent(held[1], 0)}")
            low += [(held[1], count, size, related, share)] if held[1] < 0.93 else []
        rows.append([count, size, related, *cells])
    print_table(["clusters", "of", "correlation", *(f"{percent(share, 0)}%" for share in SHARES)], rows)
    few = sorted({each[1] for each in low})
    print(f"below 93%: {len(low)} of {len(rows) * len(SHARES)} cells, with {few} clusters; the least is {min(low)}\n")


def bootstraps() -> None:
    repeats, random = 200, np.random.default_rng(1)
    print(f"## Few clusters: coverage in percent, bootstraps of clusters (scipy) against used ({repeats} each)\n")
    rows = []
    for (count, size), related, share in product(((5, 20), (10, 20), (20, 20)), (0.0, 0.3), (0.1, 0.5)):
        sums, sizes = draw_sums(random, repeats, count, size, share, related), np.full(count, float(size))
        bottom, top = compute_clustered_intervals(sums, sizes)
        held = [float(((bottom <= share) & (share <= top)).mean())]
        for method in ("percentile", "BCa"):
            within = 0
            for row in sums:
                if row.std() == 0:  # nothing to resample: a point
                    within += row[0] / size == share
                    continue
                found = bootstrap((row / size,), np.mean, n_resamples=499, method=method, rng=random, vectorized=True)
                within += found.confidence_interval.low <= share <= found.confidence_interval.high
            held.append(within / repeats)
        rows.append([count, size, related, f"{percent(share, 0)}%", *(percent(each, 0) for each in held)])
    print_table(["clusters", "of", "correlation", "share", "used", "percentile", "BCa"], rows)


DISCORDANT = ((0.0, 0.02), (0.02, 0.02), (0.05, 0.05), (0.05, 0.15), (0.1, 0.3), (0.3, 0.3))
"""Share of tasks that only the first and only the second side solves."""


def draw_differences(
    random: np.random.Generator, repeats: int, clusters: int, size: int, pair: tuple[float, float], related: float
) -> Floats:
    """Sums of differences per cluster, `[repeats, clusters]`: Dirichlet-multinomial."""
    lost, won = pair
    if related == 0:
        shares = np.broadcast_to(np.array([lost, 1 - lost - won, won]), (repeats, clusters, 3))
    else:
        scale = (1 - related) / related
        drawn = random.standard_gamma(
            np.maximum(np.array([lost, 1 - lost - won, won]) * scale, 1e-9), (repeats, clusters, 3)
        )
        shares = drawn / drawn.sum(axis=2, keepdims=True)
    ups = random.binomial(size, np.clip(shares[..., 2], 0, 1))
    rest = shares[..., 0] / np.maximum(1 - shares[..., 2], 1e-12)
    return ups - random.binomial(size - ups, np.clip(rest, 0, 1)).astype(np.float64)


def differences() -> None:
    repeats, random = 4000, np.random.default_rng(2)
    print(f"## Paired differences: coverage in percent ({repeats} simulations each)\n")
    rows = []
    shapes = [(count, 1, 0.0) for count in (5, 10, 20, 50, 100, 500, 1000)]
    sizes = ((5, 20), (10, 10), (20, 10), (50, 10), (200, 5))
    shapes += [(*shape, related) for shape in sizes for related in (0.0, 0.1, 0.3)]
    for count, size, related in shapes:
        cells = []
        for pair in DISCORDANT:
            sums = draw_differences(random, repeats, count, size, pair, related)
            low, high, _, _ = compute_differences(sums, np.full(count, float(size)))
            truth = pair[1] - pair[0]
            cells.append(percent(float(((low <= truth + 1e-9) & (truth <= high + 1e-9)).mean())))
        rows.append([count, size, related, *cells])
    print_table(["clusters", "of", "correlation", *(f"{100 * a:g}:{100 * b:g}" for a, b in DISCORDANT)], rows)


def mcnemar_power(count: int, lost: float, won: float) -> float:
    """Exact power of McNemar's exact test: over the number of tasks that differ, and how many of them are won."""
    power = 0.0
    for differing, chance in enumerate(binomial(count, lost + won)):
        if chance > 1e-9 and differing:
            outcomes = np.arange(differing + 1)
            tail = special.bdtr(np.minimum(outcomes, differing - outcomes), differing, 0.5)
            rejected = np.minimum(1.0, 2 * tail) <= 0.05
            power += chance * float(binomial(differing, won / (lost + won))[rejected].sum())
    return power


def disjoint_power(count: int, share: float, difference: float) -> float:
    """Chance that two intervals of independent evaluations of `share` and `share` + `difference` do not overlap."""
    bounds = np.array([compute_share_interval(won, count) for won in range(count + 1)])
    first, second = binomial(count, share), binomial(count, share + difference)
    above = bounds[None, :, 0] > bounds[:, None, 1]
    return float((first[:, None] * second[None, :] * above).sum())


def power() -> None:
    print("## Power: chance in percent that a difference is found, by McNemar's exact test of paired tasks (exact)\n")
    differing = (0.04, 0.1, 0.2, 0.4)
    rows = []
    for count, difference in product((100, 300, 500, 1000, 2000, 5000), (0.01, 0.02, 0.05)):
        cells = [
            percent(mcnemar_power(count, (d - difference) / 2, (d + difference) / 2), 0) if difference <= d else "-"
            for d in differing
        ]
        both = percent(disjoint_power(count, 0.7, difference), 0) if count <= 2000 else "-"
        rows.append([count, f"+{percent(difference, 0)}", *cells, both])
    head = [f"{percent(d, 0)}% of tasks differ" for d in differing]
    print_table(["tasks", "points", *head, "two intervals apart, from 70%"], rows)
    print("## Smallest difference found in 80%, in points (percent in which McNemar's exact test finds it)\n")
    rows = []
    for count in (100, 300, 500, 1000, 2000, 5000):
        cells = []
        for d in differing:
            seen = compute_detectable(standard_error=float(np.sqrt(d / count)), freedom=count - 1)
            exact = percent(mcnemar_power(count, (d - seen) / 2, (d + seen) / 2), 0) if seen < d else "never"
            cells.append(f"{percent(seen)} ({exact})")
        rows.append([count, *cells])
    print_table(["tasks", *head], rows)


def two_points() -> None:
    repeats, count, random = 2000, 1000, np.random.default_rng(3)
    print(f"## +2 points on {count} tasks: how often each way finds it, in percent ({repeats} simulations each)\n")
    rows = []
    for difference, differing in product((0.0, 0.02), (0.04, 0.06, 0.1)):
        lost, won = (differing - difference) / 2, (differing + difference) / 2
        drawn = random.multinomial(count, [0.7 - lost, lost, won, 0.3 - won], repeats)
        bounds = [compute_share_interval(int(each), count) for each in range(count + 1)]
        apart = paired = interval = 0
        for both, first_only, second_only, _ in drawn:
            first, second = bounds[both + first_only], bounds[both + second_only]
            apart += first[1] < second[0] or second[1] < first[0]
            paired += compute_mcnemar(int(first_only), int(second_only)) < 0.05
            values = np.zeros((1, count))
            values[0, :second_only], values[0, second_only : second_only + first_only] = 1, -1
            low, high, _, _ = compute_differences(values, np.ones(count))
            interval += not low[0] <= 0 <= high[0]
        cells = (percent(each / repeats) for each in (apart, paired, interval))
        rows.append([f"+{percent(difference, 0)}", f"{percent(differing, 0)}%", *cells])
    print_table(["points", "tasks that differ", "intervals apart", "McNemar", "interval of the difference"], rows)


def sequential() -> None:
    repeats, count, random = 400, 1000, np.random.default_rng(4)
    print(f"## Stopping when sure, at most {count} tasks, a look every 32 ({repeats} simulations each)\n")
    rows = []

    def try_out(name: str, draw: Callable[[], Floats], truth: float, threshold: float, least: float, sd: float) -> None:
        right = wrong = tasks = 0
        for _ in range(repeats):
            test = MeanTest(threshold=threshold, least=least)
            results = draw()
            for begin in range(0, count, 32):
                test.observe(results[begin : begin + 32])
                if test.decision:
                    break
            if test.decision:
                is_right = truth != threshold and (test.decision == "above") == (truth > threshold)
                right, wrong = right + is_right, wrong + (not is_right)
            tasks += test.count
        fixed = compute_power(truth - threshold, standard_error=sd / count**0.5) if truth != threshold else 0.05
        found = [percent(each / repeats) for each in (wrong, right)]
        rows.append([name, *found, f"{tasks / repeats:.0f}", percent(fixed, 0)])

    for share in (0.5, 0.52, 0.55, 0.6, 0.7, 0.9):
        draw = lambda share=share: random.binomial(1, share, count).astype(np.float64)  # noqa: E731
        try_out(f"success {percent(share, 0)}% against 50%", draw, share, 0.5, 0.0, (share * (1 - share)) ** 0.5)
    for difference, differing in ((0.0, 0.1), (0.0, 0.4), (0.02, 0.04), (0.05, 0.1), (0.1, 0.2), (0.2, 0.4)):
        chances = [(differing - difference) / 2, 1 - differing, (differing + difference) / 2]
        draw = lambda chances=chances: random.choice([-1.0, 0.0, 1.0], count, p=chances)  # noqa: E731
        name = f"+{percent(difference, 0)} points where {percent(differing, 0)}% of tasks differ"
        try_out(name, draw, difference, 0.0, -1.0, (differing - difference**2) ** 0.5)
    print_table(["truth", "wrong or false", "found", "tasks played", f"found with all {count}"], rows)


PARTS: dict[str, Callable[[], None]] = {
    "shares": shares,
    "clusters": clusters,
    "bootstrap": bootstraps,
    "differences": differences,
    "power": power,
    "two_points": two_points,
    "sequential": sequential,
}


def main(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for name in names or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
