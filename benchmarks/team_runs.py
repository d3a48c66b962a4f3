"""Print the results of teams and debates on held-out tasks, as Markdown tables on standard output.

    python benchmarks/team_runs.py RUN [RUN ...]

One line per evaluation of every run folder: tasks, the share of them that succeeded with its 95% Wilson interval, and
the same for tasks where A is right and where B is. Every task counts once, however many roles learn. For debates it
also shows what the right side and the other side quoted: the share of quotes that are the debater's latest line,
another of its own lines, one of the other side's, an irrelevant one, or no line of the record.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.summary import is_success
from turnwise.rewards.answers import extract_answer
from turnwise.store.trajectories import load_groups
from turnwise_worlds.debate.case import NEITHER, NOTHING, Case, build_case
from turnwise_worlds.debate.environment import SIDE_OF

QUOTES = ("own latest", "own", "other side", "irrelevant", "none")


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    kinds = ", ".join(QUOTES)
    heads = ["run", "evaluation", "tasks", "success", "A is right", "B is right"]
    heads += [f"quotes of who is right: {kinds}", f"of who is wrong: {kinds}"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for run in parser.parse_args().runs:
        for file in sorted((run / "evaluations").glob("*.npz")):
            groups = load_groups(file.parent, file.stem)
            sides = [
                [group for group in groups if group.task.payload.get("kind") == f"{side} is right"] for side in "AB"
            ]
            quotes = [describe_quotes(groups, honest=honest) for honest in (True, False)]
            cells = [run.name, file.stem, str(len(groups)), describe(groups), *map(describe, sides), *quotes]
            print(f"| {' | '.join(cells)} |")


def describe(groups: Iterable[TrajectoryGroup]) -> str:
    """Share of groups that succeeded, with its interval; all roles of an episode agree on success."""
    results = [is_success(group.trajectories[0]) for group in groups]
    if not results:
        return "-"
    low, high = compute_wilson_interval(sum(results), len(results))
    return f"{sum(results) / len(results):.3f} [{low:.3f}, {high:.3f}]"


def describe_quotes(groups: Iterable[TrajectoryGroup], *, honest: bool) -> str:
    """Shares in the order of `QUOTES`, for the right side or the other one; "-" if nothing was quoted."""
    counts: Counter[str] = Counter()
    for group in groups:
        for trajectory in group.trajectories:
            side = SIDE_OF.get(trajectory.id.role)
            if side is not None and isinstance(trajectory.reward, Scored):
                case = build_case(int(group.task.payload["seed"]))
                counts.update(list_quotes(case, trajectory) if (side == case.truth) == honest else ())
    total = sum(counts.values())
    return ", ".join(f"{counts[kind] / total:.2f}" for kind in QUOTES) if total else "-"


def list_quotes(case: Case, trajectory: Trajectory) -> list[str]:
    """The kind of each quote by a debater."""
    side = SIDE_OF[trajectory.id.role]
    kinds = []
    for turn in trajectory.turns:
        quote = case.accept(extract_answer(turn.message.text) or NOTHING, verify=True)
        shown = case.show(quote)
        if quote == NOTHING:
            kinds.append("none")
        elif shown.endswith(NEITHER):
            kinds.append("irrelevant")
        elif quote in case.list_support(side):
            kinds.append("own latest" if quote == case.list_support(side)[-1] else "own")
        else:
            kinds.append("other side")
    return kinds


if __name__ == "__main__":
    main()
