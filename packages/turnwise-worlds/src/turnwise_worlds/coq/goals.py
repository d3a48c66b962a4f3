"""Reads the goals that coqtop prints."""

from __future__ import annotations

import re

from turnwise_worlds.proving.prover import Goal

DONE = "No more goals."
_LINE = re.compile(r"^ {2}=+(?: .*)?$", re.MULTILINE)
_OTHER = re.compile(r"^\s*goal \d+(?: \(ID \d+\))? is:\n", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (?:focused )?goals?\b")


def read_goals(text: str) -> tuple[Goal, ...] | None:
    """Return the goals of an answer, none for a proof without any left; None for a text of another form.

    Of the goals after the first coqtop prints the conclusions only.
    """
    if text.strip() == DONE:
        return ()
    count, line = _COUNT.search(text), _LINE.search(text)
    if count is None or line is None or count.end() > line.start():
        return None
    first, *others = _OTHER.split(text[line.end() :])
    if len(others) + 1 != int(count[1]):
        return None
    lines = (row.strip() for row in text[count.end() : line.start()].splitlines()[1:])
    hypotheses = tuple(pair for row in lines if row for pair in _split_names(row))
    goals = [Goal(hypotheses=hypotheses, conclusion=" ".join(first.split()))]
    return (*goals, *(Goal(hypotheses=(), conclusion=" ".join(other.split())) for other in others))


def _split_names(row: str) -> list[tuple[str, str]]:
    names, _, type_ = row.partition(" : ")
    name, _, value = names.partition(" := ")
    if value:
        return [(name, f"{type_} := {value}")]
    return [(name, type_) for name in names.split(", ")]
