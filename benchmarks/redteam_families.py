"""Attack the reward of every family and recipe that ships, and tabulate which attacks hold.

    PYTHONPATH=examples python benchmarks/redteam_families.py [--tasks 20] [--only WORD] [--datasets]

A row per target: how many attempts an attack has, how many attacks apply (an attack counts once for each role), how
many get no more than they are worth, which holes are listed, and which are not. Targets whose episodes run programs
play `PROGRAM_TASKS` tasks. Exits with 1 if a hole is not listed.

With `--datasets`, the targets are the data sets of reasoning-gym without the `SLOW` ones, and the attacks those on
answers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.errors import TurnwiseError
from turnwise_rewards.redteam.attacks.answers import ANSWERS
from turnwise_rewards.redteam.attacks.table import ATTACKS
from turnwise_rewards.redteam.check import Line, check_reward
from turnwise_rewards.redteam.known import list_holes
from turnwise_rewards.runs.targets import find_target

PROGRAM_TASKS = 4
DATASET_TASKS = 12
SLOW = ("arc_agi", "figlet_font", "futoshiki", "group_anagrams", "knight_swap", "sokoban", "zebra_puzzles")
"""Data sets whose entries take so long to draw or to judge that their attacks do not end within half a minute."""
MOST_NAMED = 6
"""Most attacks that a row names."""
ROLE_TASKS = 6
"""Tasks of recipes with a proposer and eight solvers, each of which is attacked."""
FAMILIES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("countdown", {}),
    ("report", {}),
    ("search_qa", {}),
    ("search_qa", {"reward": "f1"}),
    ("search_qa", {"reward": "bleu"}),
    ("search_qa", {"reward": "format"}),
    ("debate", {}),
    ("delegate", {}),
    ("games", {"game": "nim"}),
    ("games", {"game": "tictactoe"}),
    ("games", {"game": "kuhn"}),
    ("games", {"game": "leduc"}),
    ("games", {"game": "negotiation"}),
    ("memory", {}),
    ("memory", {"style": "fold"}),
    ("memory", {"style": "operations"}),
    ("memory", {"style": "rolling"}),
    ("plan", {}),
    ("relay", {}),
    ("retry", {}),
    ("revise", {}),
    ("tool_calls", {}),
    ("reasoning_gym", {"datasets": {"course_schedule": 1.0}}),
)
PROGRAMS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("math_code", {}),
    ("coding", {}),
    ("coding", {"prompt": "short", "kinds": {"arithmetic": 1.0}}),
    ("repair", {}),
    ("repair", {"tests_graded": "workdir"}),
)
RECIPES = (
    "redteam/clerk",
    "grounding/tiny",
    "shaping/calibration",
    "shaping/calibration shaping/plain",
    "shaping/calibration shaping/linear",
    "shaping/calibration shaping/log",
    "shaping/calibration shaping/abstain",
    "shaping/drawers",
    "shaping/drawers shaping/parts/call_format",
    "shaping/drawers shaping/parts/curiosity",
    "shaping/drawers shaping/parts/plan_consistency",
    "shaping/drawers shaping/parts/progress",
    "shaping/drawers shaping/parts/redundancy",
    "shaping/drawers shaping/parts/tool_success",
    "shaping/drawers shaping/parts/usefulness",
    "shaping/drawers shaping/parts/usefulness shaping/gate",
    "reward_models/chain",
    "unlabelled/right",
    "unlabelled/wrong",
    "search_r1/tiny",
    "toolrl/tiny",
    "proposer/programs",
    "proposer/search",
    "reflection/retry",
    "reflection/score",
    "games/kuhn",
    "games/leduc",
    "games/negotiation",
    "games/nim",
    "games/tictactoe",
    "teams/debate",
    "teams/judge",
    "teams/relay",
    "planning/countdown",
    "planning/plan",
    "memory/chunks",
    "memory/fold",
    "memory/operations",
    "memory/rolling",
    "delegate/search",
    "examples/guess.toml",
    "examples/own_environment.toml",
    "examples/own_judge.toml",
    "examples/own_pages.toml",
)
PROGRAM_RECIPES = ("retool/tiny", "deepcoder/tiny", "repair/tiny", "repair/small", "mcp/tiny")


Target = tuple[str, Mapping[str, Any], int]
"""A name, arguments and how many tasks are played."""


def list_targets(tasks: int) -> list[Target]:
    """The families, then the recipes, then those that run programs."""
    targets: list[Target] = [(name, arguments, tasks) for name, arguments in FAMILIES]
    targets += [(name, {}, ROLE_TASKS if "proposer" in name else tasks) for name in RECIPES]
    targets += [(name, arguments, PROGRAM_TASKS) for name, arguments in PROGRAMS]
    return [*targets, *((name, {}, PROGRAM_TASKS) for name in PROGRAM_RECIPES)]


def list_datasets() -> list[Target]:
    """The data sets of reasoning-gym."""
    from turnwise_adapters import reasoning_gym

    names = [name for name in reasoning_gym.list_datasets() if name not in SLOW]
    return [("reasoning_gym", {"datasets": {name: 1.0}}, DATASET_TASKS) for name in names]


def describe(name: str, lines: Sequence[Line], seconds: float) -> str:
    """A row of the table."""
    played = [line for line in lines if line.state != "does not apply"]
    counts = [sum(line.state == state for line in played) for state in ("holds", "listed", "hole")]
    named = [f"{line.attack} ({line.role})" for line in played if line.state != "holds"]
    holes = ", ".join(named[:MOST_NAMED]) + (f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else "")
    tasks = max(line.num_tasks for line in played)
    return f"| {name} | {tasks} | {len(played)} | {' | '.join(map(str, counts))} | {holes or '-'} | {seconds:.0f} |"


def main() -> None:
    """Attack and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--datasets", action="store_true")
    options = parser.parse_args()
    attacks = ANSWERS if options.datasets else ATTACKS
    targets = list_datasets() if options.datasets else list_targets(options.tasks)
    print("| target | attempts | attacks | hold | listed | holes | which do not hold | s |")
    print("|---|---|---|---|---|---|---|---|")
    bad = False
    for name, arguments, tasks in targets:
        shown = " ".join([name, *(f"{key}={value}" for key, value in arguments.items())])
        if options.only not in shown:
            continue
        started = time.perf_counter()
        try:
            first, *over = name.split()
            target = find_target(first, arguments, over=over)
            holes = list_holes(target.environments, target.arguments, target.rewards)
            lines = check_reward(target.arena, num_tasks=tasks, listed=holes, attacks=attacks)
        except TurnwiseError as error:
            print(f"| {shown} | not attacked: {error} |", flush=True)
            continue
        print(describe(shown, lines, time.perf_counter() - started), flush=True)
        for line in lines:
            if line.state == "hole":
                print(f"{shown}: {line.attack} ({line.role}): {line.why}", file=sys.stderr, flush=True)
        bad = bad or any(line.state == "hole" for line in lines)
    sys.exit(bad)


if __name__ == "__main__":
    main()
