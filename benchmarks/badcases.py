"""Measure how exactly badcases are named: plants one fault of every class in attempts at generated tasks, names them,
and prints the confusion table that docs/badcases.md has.

    python benchmarks/badcases.py [--families search repair shop] [--tasks 20] [--out FILE.json]

A scripted policy plays each attempt in its real environment: replies of the oracle, then the fault, then whatever ends
it. In every other task a malformed reply, from which the attempt recovers, comes first. An attempt that succeeds in
spite of its fault, such as a wrong answer that happens to be right, is counted and left out. Three things are compared
with what was planted: the name, the turn, and the turn that the oracle's plan finds."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from planted.script import Planted, play, write_nonsense

from turnwise.badcases.divergence import Divergence
from turnwise.badcases.naming import name_fault
from turnwise.badcases.planned import find_by_oracle, find_oracle
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.summary import is_success


class Planter(Protocol):
    """Plants faults in the tasks of a family."""

    def plant(self, index: int) -> Iterator[Planted]:
        """Yield attempts with one fault each."""
        ...


def build_planter(family: str) -> Planter:
    """The planter of a family by name."""
    if family == "search":
        from planted.search import SearchFaults

        return SearchFaults()
    if family == "repair":
        from planted.repairs import RepairFaults

        # A busy machine may be slow to start a sandbox.
        return RepairFaults(tool_timeout_s=600.0, wall_s=60.0)
    from planted.shop import ShopFaults

    return ShopFaults()


@dataclass(slots=True, kw_only=True)
class Found:
    """What was found in the planted attempts of one family."""

    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often what was planted got which name."""
    turns: Counter[bool] = field(default_factory=Counter)
    """How often a rightly named fault has the planted turn."""
    oracle: Counter[bool] = field(default_factory=Counter)
    """How often the oracle's divergence is the planted turn, where it found one."""
    elsewhere: Counter[str] = field(default_factory=Counter)
    """Faults whose divergence the oracle puts in another turn."""
    succeeded: int = 0
    """Attempts that succeeded in spite of their fault."""
    wrong: list[str] = field(default_factory=list)
    """What was named wrongly, one line each."""

    @property
    def num_right(self) -> int:
        """Attempts with the right name."""
        return sum(count for (planted, named), count in self.pairs.items() if planted == named)


def with_slip(planted: Planted) -> Planted:
    """The same attempt after a malformed reply from which it recovers: what is to be found is the fault, a turn later.
    Of faults that begin with such replies it would be a part; they stay as they are."""
    if planted.name == "format" or planted.turn is None:
        return planted
    return replace(
        planted,
        replies=[write_nonsense("oops"), *planted.replies],
        turn=planted.turn + 1,
        diverges=0,
        max_turns=planted.max_turns + 1,
    )


async def measure(planter: Planter, tasks: Sequence[int], *, with_oracle: bool = True) -> Found:
    """Plant, play, name and compare."""
    found = Found()
    for index in tasks:
        for planted in (with_slip(each) if index % 2 else each for each in planter.plant(index)):
            trajectory = await play(planted)
            if is_success(trajectory):
                found.succeeded += 1
                continue
            fault = name_fault(planted.family, planted.task, trajectory)
            found.pairs[planted.name, fault.name] += 1
            if fault.name != planted.name:
                found.wrong.append(f"task {index}: {planted.name} is called {fault.name} ({fault.detail})")
            elif planted.turn is not None:
                found.turns[fault.turn == planted.turn] += 1
                if fault.turn != planted.turn:
                    found.wrong.append(f"task {index}: {planted.name} of turn {planted.turn} is put in {fault.turn}")
            oracle = find_oracle(planted.family)
            if with_oracle and oracle is not None and planted.turn is not None:
                where = await find_by_oracle(
                    planted.family, oracle, planted.task, trajectory, seed=0, max_turns=planted.max_turns
                )
                if isinstance(where, Divergence):
                    expected = planted.turn if planted.diverges is None else planted.diverges
                    found.oracle[where.turn == expected] += 1
                    if where.turn != expected:
                        found.elsewhere[planted.name] += 1
    return found


def print_found(family: str, found: Found) -> None:
    """Print the table of one family as Markdown."""
    total = found.pairs.total()
    print(f"\n## {family}\n\n| planted | n | right | called otherwise |\n|---|---|---|---|")
    for name in sorted({planted for planted, _ in found.pairs}):
        named = {other: count for (planted, other), count in found.pairs.items() if planted == name}
        others = ", ".join(f"{other} {count}" for other, count in sorted(named.items()) if other != name)
        print(f"| {name} | {sum(named.values())} | {named.get(name, 0)} | {others} |")
    print(f"| all | {total} | {_share(found.num_right, total)} | |")
    print(f"\nturn of the fault as planted: {_share(found.turns[True], found.turns.total())}")
    if found.oracle:
        others = ", ".join(f"{name} {count}" for name, count in sorted(found.elsewhere.items()))
        share = _share(found.oracle[True], found.oracle.total())
        print(f"turn of the oracle's divergence as planted: {share}" + (f"; elsewhere: {others}" if others else ""))
    print(f"attempts that succeeded in spite of the fault, left out: {found.succeeded}")
    for line in found.wrong[:20]:
        print(f"  {line}")


def _share(count: int, total: int) -> str:
    low, high = compute_wilson_interval(count, total)
    return f"{count} of {total}, {100 * count / max(total, 1):.1f}% [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=["search", "repair", "shop"])
    parser.add_argument("--tasks", type=int, default=20, help="held-out tasks of each family")
    parser.add_argument("--out", type=Path, help="also write the counts as JSON")
    chosen = parser.parse_args()
    written: dict[str, Any] = {}
    for family in chosen.families:
        found = asyncio.run(measure(build_planter(family), range(chosen.tasks)))
        print_found(family, found)
        written[family] = {f"{planted} -> {named}": count for (planted, named), count in sorted(found.pairs.items())}
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(written, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
