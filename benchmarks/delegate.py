"""Compare a planner with searchers and a single agent, from finished runs: success, sampled tokens, longest contexts.

    python benchmarks/delegate.py RUN [RUN ...]

Prints one row of Markdown per evaluation of each run of `delegate/search`. Success is that of episodes (a
summary of `turnwise evaluate` counts every role that learns), with its 95% Wilson interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from turnwise.config.load import load_resolved
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.reporting.examples import succeeded
from turnwise.reporting.summaries import load_summaries
from turnwise.reporting.voices import Row, find_lead, group_episodes
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_rows

HEAD = (
    "run",
    "agents",
    "seed",
    "evaluation",
    "all",
    "2-hop",
    "tokens sampled in RL",
    "per episode",
    "longest context",
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for path in parser.parse_args().runs:
        for cells in measure(RunFolder.open(path)):
            print(f"| {' | '.join(cells)} |")


def measure(run: RunFolder) -> list[list[str]]:
    """The cells of every evaluation of a run."""
    config = load_resolved(run.path / "config.json")
    agents = str(config.environment.args.get("agents", "two"))
    sampled: dict[int, int] = {0: 0}
    for row in run.read_metrics():
        if row["phase"] == "train":
            sampled[row["step"]] = sampled[row["step"] - 1] + int(row["rollout/sampled_tokens"])
    lines = []
    for summary in load_summaries(run.path):
        rows = load_rows(run.path / "evaluations", summary["name"])
        episodes = [episode for episode in group_episodes(rows) if "scored" in find_lead(episode)["reward"]]
        hops = [episode for episode in episodes if episode[0]["task"]["payload"]["kind"] == "2hop"]
        per_episode = sum(count_sampled(row) for row in rows) / len(episodes)
        longest = {
            role: max(r for row in rows if row["id"]["role"] == role for r in list_contexts(row))
            for role in roles(rows)
        }
        lines.append(
            [
                run.path.name,
                agents,
                str(config.run.seed),
                str(summary["label"]),
                share(episodes),
                share(hops),
                f"{sampled[summary['step']]:,}",
                f"{per_episode:.1f}",
                ", ".join(f"{role} {length}" for role, length in longest.items()),
            ]
        )
    return lines


def roles(rows: Sequence[Row]) -> list[str]:
    """The roles that said anything, in order."""
    return list(dict.fromkeys(row["id"]["role"] for row in rows if row["turns"]))


def share(episodes: Sequence[Sequence[Row]]) -> str:
    """Format as `0.912 [0.887, 0.932]`."""
    count = sum(succeeded(find_lead(episode)) for episode in episodes)
    low, high = compute_wilson_interval(count, len(episodes))
    return f"{count / max(1, len(episodes)):.3f} [{low:.3f}, {high:.3f}]"


def count_sampled(row: Row) -> int:
    """Sampled tokens of a trajectory."""
    return sum(turn["completion"][1] - turn["completion"][0] for turn in row["turns"])


def list_contexts(row: Row) -> list[int]:
    """Tokens of the whole conversation up to the end of every turn."""
    lengths: list[int] = []
    for turn in row["turns"]:
        before = 0 if turn["parent"] is None else lengths[turn["parent"]]
        lengths.append(before + turn["completion"][1] - turn["context"][0])
    return lengths or [0]


if __name__ == "__main__":
    main()
