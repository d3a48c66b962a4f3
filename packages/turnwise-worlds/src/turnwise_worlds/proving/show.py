"""States as text, and the controls that take from them what a policy needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from turnwise.core.seeds import rng
from turnwise_worlds.proving.prover import Goal

HIDDEN = " ?"
"""What is shown in place of a state that is hidden."""


def show_state(goals: Sequence[Goal]) -> str:
    """Write goals as provers do: the hypotheses of the first, a line each, then `|- conclusion` for every goal."""
    lines = [f"{name} : {type_}" for name, type_ in goals[0].hypotheses] if goals else ["no goals"]
    return "\n".join([*lines, *(f"|- {goal.conclusion}" for goal in goals)])


def read_goal(text: str) -> Goal:
    """Read the first goal of a text by `show_state`."""
    before, _, after = f"\n{text}".partition("\n|- ")
    pairs = [line.partition(" : ") for line in before.splitlines()]
    hypotheses = tuple((name, type_) for name, colon, type_ in pairs if colon and " " not in name)
    return Goal(hypotheses=hypotheses, conclusion=after.partition("\n")[0])


def shuffle_names(names: Iterable[str], seed: int) -> dict[str, str]:
    """Return another of these names for each of at least two; none keeps its own."""
    drawn = sorted(set(names))
    rng(seed, "shuffled names", *drawn).shuffle(drawn)
    return dict(zip(drawn, [*drawn[1:], *drawn[:1]], strict=True))


def rename(goal: Goal, names: Mapping[str, str]) -> Goal:
    """Return a goal whose hypotheses have other names; what they say stays."""
    return replace(goal, hypotheses=tuple((names.get(name, name), type_) for name, type_ in goal.hypotheses))
