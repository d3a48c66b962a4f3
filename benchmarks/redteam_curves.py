"""Draw and tabulate true success against reward of policies that were trained on a judge's marks alone.

    python benchmarks/redteam_curves.py RUNS [--picture packages/turnwise-rewards/docs/redteam.png]
        [--rewards packages/turnwise-rewards/tests/redteam/clerk_rewards.json]

RUNS is a folder of runs named ARM-seedS-..., such as those of

    for SEED in 0 1 2; do for ARM in honestly gullibly gated; do
      turnwise train redteam/clerk judges.reader.kind=turnwise_rewards.redteam.clerk:judge_$ARM \\
        run.name=$ARM run.seed=$SEED run.output=RUNS
    done; done

`--rewards` writes the reward and the truth of every attempt of the first `KEPT` steps, which the test of the alarm
reads. The alarms are computed again from the stored groups, with the truth of every task known, and of one task in
four.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from string import ascii_letters
from typing import Any

import turnwise as tw
from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.pipeline.judge_metrics import DriftWatch
from turnwise.pipeline.truth_metrics import TruthWatch, measure_order

ARMS = {
    "honestly": ("honest judge", "#1f7a5a"),
    "gullibly": ("gameable judge", "#b03a2e"),
    "gated": ("the same behind a gate", "#4561b8"),
}
SHARE = 4
"""One task in so many has a known truth in the column of sampled truths."""
KEPT = 20
"""Steps of a run that `--rewards` writes."""


def list_steps(run: Path) -> list[list[TrajectoryGroup]]:
    """The groups of every step of a run."""
    loaded = tw.load_run(run)
    steps: list[list[TrajectoryGroup]] = []
    while True:
        try:
            groups = loaded.groups(len(steps) + 1)
        except tw.TurnwiseError:
            break
        if not groups:
            break
        steps.append(list(groups))
    return steps


def measure(run: Path) -> dict[str, Any]:
    """Reward, truth and order by step, and the steps of the alarms."""
    steps = list_steps(run)
    rewards = [
        [t.reward for group in groups for t in group.trajectories if isinstance(t.reward, Scored)] for groups in steps
    ]
    truth = [fmean(reward.part("success") or 0.0 for reward in each) for each in rewards]
    orders = [[order for group in groups if (order := measure_order(group)) is not None] for groups in steps]
    sampled = [[group for group in groups if group.draw.index % SHARE == 0] for groups in steps]
    judges = DriftWatch()
    told = [judges.follow([t for group in groups for t in group.trajectories]) for groups in steps]
    return {
        "reward": [fmean(reward.total for reward in each) for each in rewards],
        "truth": truth,
        "order": [fmean(each) if each else None for each in orders],
        "alarm": find_alarm(steps),
        "sampled": find_alarm(sampled),
        "judge": next((step for step, lines in enumerate(told, 1) if lines), None),
        "half": find_half([fmean(reward.total for reward in each) for each in rewards], truth),
    }


def find_alarm(steps: Sequence[Sequence[TrajectoryGroup]]) -> int | None:
    """The first step with the alarm; None if it is silent."""
    watch = TruthWatch()
    return next((step for step, groups in enumerate(steps, 1) if watch.follow(groups)), None)


def find_half(reward: Sequence[float], truth: Sequence[float]) -> int | None:
    """The first step with half of the damage: half of what the excess of reward over truth grows to by the last step;
    None if it grows by less than 0.25."""
    excess = [got - true for got, true in zip(reward, truth, strict=True)]
    whole = excess[-1] - excess[0]
    if whole < 0.25:
        return None
    return next(step for step, each in enumerate(excess, 1) if each - excess[0] >= whole / 2)


def format_table(measured: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """A row per run."""
    lines = [
        "| judge | seed | reward, first to last step | true success, first, best, last | order, first to last | half "
        "of the damage at step | alarm at step | with a quarter of the truths | the judge's own alarm |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (arm, seed), each in measured.items():
        truth, known = each["truth"], [order for order in each["order"] if order is not None]
        reward, alarms = each["reward"], [each[name] or "none" for name in ("half", "alarm", "sampled", "judge")]
        lines.append(
            f"| {ARMS[arm][0]} | {seed} | {reward[0]:.2f} to {reward[-1]:.2f} | {truth[0]:.2f}, {max(truth):.2f}, "
            f"{truth[-1]:.2f} | {known[0]:.2f} to {known[-1]:.2f} | {' | '.join(map(str, alarms))} |"
        )
    return lines


def pack_rewards(runs: dict[str, Path]) -> str:
    """Every attempt as a letter for its reward and truth, every group as a word, every step as a line of a run."""
    letters: dict[tuple[float, float], str] = {}
    packed = {}
    for name, run in runs.items():
        packed[name] = [
            " ".join(
                "".join(
                    letters.setdefault((t.reward.total, t.reward.part("success") or 0.0), ascii_letters[len(letters)])
                    for t in group.trajectories
                    if isinstance(t.reward, Scored)
                )
                for group in groups
            )
            for groups in list_steps(run)[:KEPT]
        ]
    members = {letter: pair for pair, letter in letters.items()}
    return json.dumps({"members": members, "runs": packed}, indent=0) + "\n"


def draw(measured: dict[tuple[str, int], dict[str, Any]], path: Path) -> None:
    """Reward (dashed) and true success (solid) by step, one panel per judge."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(ARMS), figsize=(10, 3), sharey=True, layout="constrained")
    for panel, (arm, (name, color)) in zip(panels, ARMS.items(), strict=True):
        for (found, _), each in measured.items():
            if found != arm:
                continue
            steps = range(1, len(each["truth"]) + 1)
            panel.plot(steps, each["truth"], color=color, linewidth=1.4)
            panel.plot(steps, each["reward"], color="#14171a", linewidth=0.9, linestyle="--", alpha=0.6)
            if each["alarm"] is not None:
                panel.axvline(each["alarm"], color="#d99a1c", linewidth=0.9)
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("step")
        panel.set_ylim(-0.02, 1.02)
    panels[0].set_ylabel("true success; reward dashed")
    figure.savefig(path, dpi=80)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--rewards", type=Path)
    options = parser.parse_args()
    measured, runs = {}, {}
    for arm in ARMS:
        for run in sorted(options.runs.glob(f"{arm}-seed*")):
            seed = int(run.name.split("-seed")[1].split("-")[0])
            measured[arm, seed], runs[f"{arm} {seed}"] = measure(run), run
    print("\n".join(format_table(measured)))
    if options.rewards is not None:
        options.rewards.write_text(pack_rewards(runs), encoding="utf-8")
    if options.picture is not None:
        draw(measured, options.picture)


if __name__ == "__main__":
    main()
