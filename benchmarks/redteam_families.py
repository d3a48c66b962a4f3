"""Attack the reward of every family and recipe that ships, and tabulate which attacks hold.

    PYTHONPATH=examples python benchmarks/redteam_families.py [--tasks 20] [--only WORD]

A row per target: how many attacks apply (an attack counts once for each role), how many get no more than they are
worth, which holes are listed, and which are not. Targets whose episodes run programs play `PROGRAM_TASKS` tasks. Exits
with 1 if a hole is not listed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.errors import TurnwiseError
from turnwise_rewards.redteam.check import Line, check_reward
from turnwise_rewards.redteam.known import list_holes
from turnwise_rewards.runs.targets import find_target

PROGRAM_TASKS = 4
FAMILIES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("countdown", {}),
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
    ("program_proposer", {}),
    ("relay", {}),
    ("retry", {}),
    ("revise", {}),
    ("search_proposer", {}),
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


def describe(name: str, lines: Sequence[Line], seconds: float) -> str:
    """A row of the table."""
    played = [line for line in lines if line.state != "does not apply"]
    counts = [sum(line.state == state for line in played) for state in ("holds", "listed", "hole")]
    holes = ", ".join(f"{line.attack} ({line.role})" for line in played if line.state != "holds")
    tasks = max(line.num_tasks for line in played)
    return f"| {name} | {tasks} | {len(played)} | {' | '.join(map(str, counts))} | {holes or '-'} | {seconds:.0f} |"


def main() -> None:
    """Attack and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    targets = [(name, arguments, options.tasks) for name, arguments in FAMILIES]
    targets += [(name, {}, options.tasks) for name in RECIPES]
    targets += [(name, arguments, PROGRAM_TASKS) for name, arguments in PROGRAMS]
    targets += [(name, {}, PROGRAM_TASKS) for name in PROGRAM_RECIPES]
    print("| target | tasks | attacks | hold | listed | holes | which do not hold | s |")
    print("|---|---|---|---|---|---|---|---|")
    bad = False
    for name, arguments, tasks in targets:
        shown = " ".join([name, *(f"{key}={value}" for key, value in arguments.items())])
        if options.only not in shown:
            continue
        started = time.perf_counter()
        try:
            target = find_target(name, arguments)
            lines = check_reward(
                target.arena, num_tasks=tasks, listed=list_holes(target.environments, target.arguments)
            )
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
