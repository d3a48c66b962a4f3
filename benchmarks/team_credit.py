"""Compare credit within a team of two with the true advantages, as a Markdown table on standard output.

    python benchmarks/team_credit.py [--seeds N] [--batches N]

The world is `laboratory/team.py`. Per arm: the replies an episode costs; the correlation of its advantages with the
true ones under policies of three success probabilities (knowing nothing succeeds one time in three); their variance and
mean squared error under the middle one; and for A's turn the variance of the gradient at equal replies, relative to
GRPO on the shared reward. Means with 95% intervals (Student's t) over seeds; the last column is a ratio of medians.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # `laboratory` is not installed

from laboratory.measure import compute_mean_interval
from laboratory.team import Team
from laboratory.team_credit import TEAM_ARMS, TeamArm, TeamQuality, measure_team_arm

QUALITIES = (0.4, 0.6, 0.9)
MIDDLE = 0.6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--batches", type=int, default=100)
    arguments = parser.parse_args()
    heads = ["turn", "reward", "method", "replies", *(f"r at {quality:.0%}" for quality in QUALITIES)]
    heads += ["variance", "squared error", "noise at equal replies"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    reference: float | None = None
    for arm in TEAM_ARMS:
        measured = {
            quality: [
                measure_team_arm(Team(), arm, success=quality, seed=seed, num_batches=arguments.batches)
                for seed in range(arguments.seeds)
            ]
            for quality in QUALITIES
        }
        noise = find_noise(measured[MIDDLE])
        reference = reference or noise
        cells = [arm.turn, describe(arm), arm.method, str(arm.replies)]
        cells += [interval([one.correlation for one in measured[quality]]) for quality in QUALITIES]
        cells.append(interval([one.variance for one in measured[MIDDLE]]))
        is_scaled = arm.method == "grpo"
        cells.append("-" if is_scaled else interval([one.squared_error for one in measured[MIDDLE]]))
        cells.append(f"{noise / reference:.2f}" if noise and reference and arm.turn == "tell" else "-")
        print(f"| {' | '.join(cells)} |", flush=True)


def describe(arm: TeamArm) -> str:
    """The reward's name, with the number of resampled replies."""
    return f"{arm.reward}, {arm.resamples}" if arm.resamples else arm.reward


def find_noise(measured: Sequence[TeamQuality]) -> float | None:
    """The median over seeds, counting a gradient that points the wrong way as infinite; None if the median is
    infinite."""
    median = statistics.median(math.inf if one.noise is None else one.noise for one in measured)
    return median if math.isfinite(median) else None


def interval(values: Sequence[float | None]) -> str:
    """Mean and half its 95% interval of the values that exist."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean, low, high = compute_mean_interval(known)
    return f"{mean:.3f} ± {(high - low) / 2:.3f}"


if __name__ == "__main__":
    main()
