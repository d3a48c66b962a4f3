"""Print the tables of docs/research.md: runs of the recipe `research/tiny`, and what policies and attackers earn.

    python benchmarks/research.py train [--output runs/research] [--seeds 0 1 2] [--only research random_reward]
    python benchmarks/research.py table RUN [RUN ...]
    python benchmarks/research.py figures RUN [RUN ...] [--show 3]
    python benchmarks/research.py policies [--tasks 100]

`train` trains the arms, the recipe and the same with a coin as reward; a finished run is not trained again.
`turnwise evaluate RUN --on research --tasks 60 --set min_sections=5 --set max_sections=5 --set max_facts=3` adds long
reports to a run.
`figures` prints supported and unsupported claims per run, `--show` besides so many reports, `policies` what
scripted policies earn by the family's default arguments. Intervals are Wilson's at 95%; claims of one report are
not independent, so that theirs are too narrow."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from arms import Arm, run_arms

from turnwise.config.load import load_resolved
from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.environments.episodes import play_episode
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.reporting.summaries import is_control, load_summaries
from turnwise.store.trajectories import load_groups
from turnwise_synthesis.research.outline import read_outline
from turnwise_synthesis.research.world.attackers import ATTACKS
from turnwise_synthesis.research.world.family import WorldResearch

ARMS = (
    Arm(name="research", recipes=("research/tiny",)),
    Arm(
        name="random_reward",
        recipes=("research/tiny",),
        overrides=('rewards={coin={kind="coin"}}',),
    ),
)
HEAD = [
    "| seed | policy | claims supported | unsupported claims per report | contradictions named | answers right |"
    " fabricated | calls | reward |",
    "|---|---|---|---|---|---|---|---|---|",
]


def main() -> None:
    """Train, or print."""
    commands = {"figures": print_figures, "policies": print_policies}
    if len(sys.argv) > 1 and sys.argv[1] in commands:
        commands[sys.argv[1]](sys.argv[2:])
    else:
        run_arms(ARMS, output=Path("runs/research"), description=__doc__)


def print_figures(words: Sequence[str]) -> None:
    """Print a row per evaluation of every run, and reports."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--show", type=int, default=0)
    chosen = parser.parse_args(words)
    print("\n".join([*HEAD, *(row for run in chosen.runs for row in list_rows(run))]))
    for run in chosen.runs if chosen.show else []:
        print("", *list_reports(run, chosen.show), sep="\n\n")


def list_rows(run: Path) -> Iterator[str]:
    """Return a row per evaluation of a run."""
    seed = load_resolved(run / "config.json").run.seed
    for summary in load_summaries(run):
        groups = load_groups(run / "evaluations", summary["name"])
        scored = [
            (len(read_outline(group.task).asked), trajectory.reward)
            for group in groups
            for trajectory in group.trajectories
            if isinstance(trajectory.reward, Scored)
        ]
        yield write_row([str(seed), summary["label"]], scored)


def write_row(cells: Sequence[str], scored: Sequence[tuple[int, Scored]]) -> str:
    """Return a row of figures over rewards, each with the number of claims asked for."""
    rewards = [reward for _, reward in scored]
    supported = sum((reward.part("supported") or 0) * asked for asked, reward in scored)
    named = [value for reward in rewards if (value := reward.part("named")) is not None]
    figures = [
        interval(supported, sum(asked for asked, _ in scored)),
        f"{mean(rewards, 'unsupported_claims'):.2f}",
        f"{sum(named) / len(named):.3f} ({len(named)} reports)" if named else "",
        interval(total(rewards, "answered"), len(rewards)),
        f"{total(rewards, 'fabricated'):.0f} of {total(rewards, 'citations'):.0f}",
        f"{mean(rewards, 'calls'):.1f}",
        f"{sum(reward.total for reward in rewards) / max(1, len(rewards)):z.3f}",
    ]
    return f"| {' | '.join([*cells, *figures])} |"


def total(rewards: Sequence[Scored], part: str) -> float:
    """Return the sum of a part."""
    return sum(reward.part(part) or 0.0 for reward in rewards)


def mean(rewards: Sequence[Scored], part: str) -> float:
    """Return the mean of a part; 0 of nothing."""
    return total(rewards, part) / max(1, len(rewards))


def interval(hits: float, count: float) -> str:
    """Write a share with its interval; "none" of nothing."""
    if not count:
        return "none"
    low, high = compute_wilson_interval(round(hits), round(count))
    return f"{hits / count:.3f} [{low:.3f}, {high:.3f}]"


def list_reports(run: Path, count: int) -> Iterator[str]:
    """Return the ledgers of the first held-out reports of the last evaluation that is no control."""
    family = WorldResearch(**load_resolved(run / "config.json").environment.args)
    last = [each for each in load_summaries(run) if not is_control(each)][-1]
    groups: Sequence[TrajectoryGroup] = load_groups(run / "evaluations", last["name"])
    for group in groups[:count]:
        ledgers = family.check(group.task, family.records(group.task, group.trajectories[0])).ledgers
        yield "\n\n".join([group.task.prompt[0].text.strip(), *(ledger.show() for ledger in ledgers)])


def print_policies(words: Sequence[str]) -> None:
    """Print what scripted policies and attackers earn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=100)
    count = parser.parse_args(words).tasks
    print(
        "| policy | claims supported | unsupported claims per report | contradictions named | answers right |"
        " fabricated | calls | reward | its count per report |\n|---|---|---|---|---|---|---|---|---|"
    )
    controls: dict[str, dict[str, str]] = {
        "search off": {"search": "off"},
        "pages shuffled": {"search": "shuffled"},
        "citations shuffled": {"citations": "shuffled"},
    }
    for name in ("oracle", "naive", "random", *ATTACKS):
        scored = asyncio.run(play(WorldResearch(), name, count))
        part = ATTACKS[name].count if name in ATTACKS else ""
        counted = f"{part} {mean([each for _, each in scored], part):.1f} |" if part else "|"
        print(f"{write_row([f'`{name}`'], scored)} {counted}")
    for control, changes in controls.items():
        scored = asyncio.run(play(WorldResearch(**changes), "oracle", count))
        print(write_row([f"`oracle`, {control}"], scored) + " |")


async def play(family: WorldResearch, name: str, count: int) -> list[tuple[int, Scored]]:
    """Play held-out tasks; returns the claims asked for and the reward of each."""
    scored = []
    for index in range(count):
        task = family.task("heldout", index)
        played = await play_episode(family, task, family.policy(name), seed=index, max_turns=200)
        if isinstance(played.reward, Scored):
            scored.append((len(read_outline(task).asked), played.reward))
    return scored


if __name__ == "__main__":
    main()
