"""Print the tables of packages/turnwise-rewards/docs/grounding.md: runs of the recipe `grounding/tiny`, and what
attackers earn.

    python benchmarks/grounding.py [a.b=value ...] [--seeds 0 1 2] [--output runs/benchmark]
    python benchmarks/grounding.py --read RUN [RUN ...] [--show 3]
    python benchmarks/grounding.py --attacks 100

`--read` prints the tables of finished runs, `--show` besides so many ledgers of held-out reports after RL, `--attacks`
the mean rewards over so many held-out tasks of the family's default arguments. Intervals are Wilson's at 95%; citations
of one report are not independent, so that those of precision are too narrow."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from turnwise.config.load import load_config, load_resolved
from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.environments.episodes import play_episode
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.reporting.summaries import is_control, load_summaries
from turnwise.runs.train import run_train
from turnwise.store.trajectories import load_groups
from turnwise_rewards.grounding.family import Report
from turnwise_rewards.grounding.ledger import BAD_CITATIONS
from turnwise_rewards.grounding.world.attackers import ATTACKS

RECIPE = Path("grounding/tiny")


def main() -> None:
    """Train, read or attack, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", default="runs/benchmark")
    parser.add_argument("--read", type=Path, nargs="+", default=[])
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--attacks", type=int, default=0)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    if arguments.attacks:
        print(write_attacks(arguments.attacks))
        return
    runs = list(arguments.read)
    for seed in [] if runs else arguments.seeds:
        config = load_config(
            [arguments.recipe], [f"run.seed={seed}", f"run.output={arguments.output}", *arguments.overrides]
        )
        runs.append(run_train(config, resume=None, display=False))
        print(runs[-1], file=sys.stderr)
    print("\n".join([*HEAD, *(row for run in runs for row in list_rows(run))]))
    for run in runs if arguments.show else []:
        print("", *list_ledgers(run, arguments.show), sep="\n\n")


HEAD = [
    "| seed | policy | citation precision | claims supported | answers right | disputed facts supported | fabricated |"
    " reward |",
    "|---|---|---|---|---|---|---|---|",
]


def list_rows(run: Path) -> Iterator[str]:
    """Return a row per evaluation of a run."""
    seed = load_resolved(run / "config.json").run.seed
    for summary in load_summaries(run):
        groups = load_groups(run / "evaluations", summary["name"])
        rewards = [t.reward for group in groups for t in group.trajectories if isinstance(t.reward, Scored)]
        asked = [len(group.task.payload["asked"]) for group in groups for _ in group.trajectories]
        citations = total(rewards, "citations")
        bad = sum(total(rewards, outcome.value) for outcome in BAD_CITATIONS)
        claims = sum((reward.part("recall") or 0) * number for reward, number in zip(rewards, asked, strict=True))
        right = sum((reward.part("answered") or 0) * number for reward, number in zip(rewards, asked, strict=True))
        disputed = [value for reward in rewards if (value := reward.part("resolved")) is not None]
        cells = [
            seed,
            summary["label"],
            interval(citations - bad, citations),
            interval(claims, sum(asked)),
            interval(right, sum(asked)),
            f"{sum(disputed) / len(disputed):.3f} ({len(disputed)} reports)" if disputed else "",
            f"{total(rewards, 'fabricated'):.0f} of {citations:.0f}",
            f"{sum(reward.total for reward in rewards) / max(1, len(rewards)):z.3f}",
        ]
        yield "| " + " | ".join(map(str, cells)) + " |"


def total(rewards: Sequence[Scored], part: str) -> float:
    """Return the sum of a part."""
    return sum(reward.part(part) or 0.0 for reward in rewards)


def interval(hits: float, count: float) -> str:
    """Write a share with its interval; empty of nothing."""
    if not count:
        return "none"
    low, high = compute_wilson_interval(round(hits), round(count))
    return f"{hits / count:.3f} [{low:.3f}, {high:.3f}]"


def list_ledgers(run: Path, count: int) -> Iterator[str]:
    """Return the ledgers of the first held-out reports of the last evaluation that is no control."""
    config = load_resolved(run / "config.json")
    family = Report(**config.environment.args)
    last = [each for each in load_summaries(run) if not is_control(each)][-1]
    groups: Sequence[TrajectoryGroup] = load_groups(run / "evaluations", last["name"])
    for group in groups[:count]:
        yield f"{group.task.prompt[0].text.strip()}\n\n{family.ledger(group.task, group.trajectories[0]).show()}"


def write_attacks(count: int) -> str:
    """Return the table of mean rewards, precisions and recalls of the oracle and of every attack on it."""
    family = Report()

    async def play(name: str) -> list[Scored]:
        rewards = []
        for index in range(count):
            task = family.task("heldout", index)
            played = await play_episode(family, task, family.policy(name), seed=index, max_turns=24)
            if isinstance(played.reward, Scored):
                rewards.append(played.reward)
        return rewards

    rows = ["| report | reward | recall | precision | fabricated |", "|---|---|---|---|---|"]
    for name in ("oracle", "naive", "random", *ATTACKS):
        rewards = asyncio.run(play(name))
        means = [sum(reward.total for reward in rewards) / len(rewards)]
        means += [total(rewards, part) / len(rewards) for part in ("recall", "precision", "fabricated")]
        rows.append(f"| `{name}` | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
