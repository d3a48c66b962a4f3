"""Print the tables of packages/turnwise-adapters/docs/adapters.md: what the adapters run with the installed packages.

    python benchmarks/adapters.py games           # every game that is listed below, with its scripted policies
    python benchmarks/adapters.py reasoning_gym   # every data set: does it open, who judges, is its own answer right
    python benchmarks/adapters.py runs RUN...     # finished runs: held-out success before and after RL

A missing package gets a row that says so; packages/turnwise-adapters/docs/adapters.md has the rows of several Python
environments.
"""

import argparse
import asyncio
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from typing import Any

from turnwise.core.checked import to_single
from turnwise.core.errors import TurnwiseError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Invalid, Reward, StopReason
from turnwise.environments.registry import load_family
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.rewards.math_verifier import MathVerifier
from turnwise_adapters.reasoning_gym import (
    ReasoningGymArguments,
    ReasoningGymGame,
    list_datasets,
    scorer_of,
)

GRID = ["left", "right", "forward", "pickup", "toggle"]
PETTING = "pettingzoo.classic"
GAMES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gymnasium", "gymnasium", {"id": "FrozenLake-v1", "make": {"is_slippery": False}, "map_size": 4}),
    ("gymnasium", "gymnasium", {"id": "FrozenLake-v1"}),
    ("gymnasium", "gymnasium", {"id": "Taxi-v4"}),
    ("gymnasium", "gymnasium", {"id": "CliffWalking-v1", "win_reward": -2.0}),
    ("gymnasium", "gymnasium", {"id": "Blackjack-v1"}),
    ("gymnasium", "gymnasium", {"id": "Pendulum-v1"}),
    ("minigrid", "minigrid", {"id": "MiniGrid-Empty-Random-5x5-v0", "actions": GRID[:3]}),
    ("minigrid", "minigrid", {"id": "MiniGrid-DoorKey-5x5-v0", "actions": GRID}),
    ("minigrid", "minigrid", {"id": "MiniGrid-SimpleCrossingS9N1-v0", "actions": GRID[:3], "max_actions": 60}),
    ("textworld", "textworld", {"narrate": False, "num_games": 10}),
    ("textworld", "textworld", {"narrate": False, "theme": "basic", "hints": False, "num_games": 10}),
    ("open_spiel", "open-spiel", {"game": "tic_tac_toe"}),
    ("open_spiel", "open-spiel", {"game": "tic_tac_toe", "opponent": "search", "simulations": 50}),
    ("open_spiel", "open-spiel", {"game": "connect_four", "simulations": 50}),
    ("open_spiel", "open-spiel", {"game": "kuhn_poker"}),
    ("open_spiel", "open-spiel", {"game": "leduc_poker"}),
    ("open_spiel", "open-spiel", {"game": "matrix_rps"}),
    ("pettingzoo", "pettingzoo", {"module": f"{PETTING}.tictactoe_v3"}),
    ("pettingzoo", "pettingzoo", {"module": f"{PETTING}.connect_four_v3"}),
    ("pettingzoo", "pettingzoo", {"module": f"{PETTING}.leduc_holdem_v4"}),
    ("pettingzoo", "pettingzoo", {"module": f"{PETTING}.texas_holdem_v4"}),
    ("pettingzoo", "pettingzoo", {"module": f"{PETTING}.chess_v6"}),
    ("pettingzoo", "pettingzoo", {"module": f"{PETTING}.rps_v2"}),
    ("pettingzoo", "pettingzoo", {"module": f"{PETTING}.gin_rummy_v4"}),
)
"""Family, package, arguments."""


async def play(family: EnvironmentFamily, index: int, policy: str) -> Reward:
    """Reward of each held-out task."""
    task, random = family.task("heldout", index), Random(index)
    environment = to_single(family.build_environment(task))
    speaker = family.policy(policy)
    replies = []
    try:
        messages = list((await environment.reset(task, index)).messages)
        while True:
            replies.append(speaker.reply(task, messages, random))
            result = await environment.step(replies[-1])
            messages += [replies[-1], *result.observations]
            if result.done:
                return await environment.score(replies, StopReason.DONE)
    finally:
        await environment.close()


def describe_success(family: EnvironmentFamily, policy: str, tasks: int) -> str:
    """Share of tasks with its interval; "none" if there is no such policy, or why the game is refused."""
    try:
        rewards = [asyncio.run(play(family, index, policy)) for index in range(tasks)]
    except TurnwiseError as error:
        return "none" if "has no expert" in str(error) else f"refused: {str(error).split(';')[0]}"
    won = sum(not isinstance(reward, Invalid) and bool(reward.part("success")) for reward in rewards)
    low, high = compute_wilson_interval(won, tasks)
    return f"{won / tasks:.2f} [{low:.2f}, {high:.2f}]"


def write_games(tasks: int, names: list[str]) -> None:
    """One row per game."""
    print("| adapter | package | game | random policy | oracle |\n|---|---|---|---|---|")
    for name, package, arguments in GAMES:
        if names and name not in names:
            continue
        shown = ", ".join(
            f"{value}" if key in ("id", "game", "module") else f"{key}={value}" for key, value in arguments.items()
        )
        try:
            installed = version(package)
        except PackageNotFoundError:
            print(f"| {name} | not installed | {shown} | | |")
            continue
        family = load_family(name, arguments)
        by_chance = describe_success(family, "random", tasks)
        expert = "" if by_chance.startswith("refused") else describe_success(family, "oracle", tasks)
        print(f"| {name} | {installed} | {shown} | {by_chance} | {expert} |", flush=True)


def write_reasoning_gym(entries: int) -> None:
    """One row per data set that is not plain: its own answer is wrong, it is judged by text, or it does not open; then
    counts."""
    verifier, plain = MathVerifier(), 0
    print(f"reasoning-gym {version('reasoning-gym')}, {entries} entries of each data set\n")
    print("| data set | judged by | its own answer is right | remark |\n|---|---|---|---|")
    names = list_datasets()
    for name in names:
        game = ReasoningGymGame(ReasoningGymArguments(), {name: 1.0}, verifier)
        right, judge, remark = 0, "", ""
        try:
            for seed in range(entries):
                game.open(seed)
                judge = scorer_of(name, game._entry)
                answer = game.expert_action()
                right += answer is not None and game.judge(answer)
                remark = "an entry has no answer" if answer is None else remark
        except TurnwiseError as error:
            remark = str(error).split("\n")[0][:160]
        if right == entries and judge == "scorer":
            plain += 1
        else:
            print(f"| {name} | {judge} | {right} of {entries} | {remark} |", flush=True)
    print(f"\nThe other {plain} of {len(names)} are judged by their own scorer, which finds their own answers right.")


def write_runs(folders: list[Path]) -> None:
    """One row per kind of task in finished runs."""
    print("| run | kind | tasks | before RL | after RL |\n|---|---|---|---|---|")
    counts = []
    for folder in folders:
        summaries = sorted((folder / "evaluations").glob("heldout_*.summary.json"))
        if len(summaries) < 2:
            sys.exit(f"{folder} has {len(summaries)} evaluations; give a run that has finished")
        before, after = (
            {row["kind"]: row for row in json.loads(path.read_text())["rows"]} for path in (summaries[0], summaries[-1])
        )
        for kind, row in after.items():
            cells = [f"{each['success']:.3f} [{each['low']:.3f}, {each['high']:.3f}]" for each in (before[kind], row)]
            print(f"| {folder.name.split('-2')[0]} | {kind} | {row['n']} | {cells[0]} | {cells[1]} |")
        openings = read_openings(summaries[-1].with_name(summaries[-1].name.replace(".summary.json", ".jsonl")))
        counts += [f"{len(seen)} of {kind}" for kind, seen in sorted(openings.items())]
    print(f"\nDifferent openings: {', '.join(counts)}.")


def read_openings(evaluation: Path) -> dict[str, set[str]]:
    """The distinct first messages of an evaluation's tasks, by kind."""
    openings: dict[str, set[str]] = {}
    for line in evaluation.read_text(encoding="utf-8").splitlines():
        task = json.loads(line)["task"]
        openings.setdefault(task["payload"]["kind"], set()).add(json.dumps(task["prompt"]))
    return openings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    games = commands.add_parser("games")
    games.add_argument("names", nargs="*", help="families; all by default")
    games.add_argument("--tasks", type=int, default=50, help="held-out tasks per policy")
    commands.add_parser("reasoning_gym").add_argument("--entries", type=int, default=10)
    commands.add_parser("runs").add_argument("folders", type=Path, nargs="+")
    chosen = parser.parse_args()
    if chosen.command == "games":
        write_games(chosen.tasks, chosen.names)
    elif chosen.command == "reasoning_gym":
        write_reasoning_gym(chosen.entries)
    else:
        write_runs(chosen.folders)


if __name__ == "__main__":
    main()
