"""Writes TextWorld's facts as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def describe_facts(facts: Sequence[Any]) -> str:
    """Describe what the player can see from their place, one fact per line, without the content of other rooms and
    closed things."""
    names = [(fact.name, *(argument.name for argument in fact.arguments)) for fact in facts]
    room = next(fact[2] for fact in names if fact[:2] == ("at", "P"))
    here = {fact[1] for fact in names if fact[0] == "at" and fact[2] == room and fact[1] != "P"} | {"I"}
    shut = {fact[1] for fact in names if fact[0] in ("closed", "locked")}
    inside = {fact[1] for fact in names if fact[0] in ("in", "on") and fact[2] in here - shut}
    seen = here | inside
    lines = [f"room {room}"]
    for name, *arguments in names:
        if name.endswith("_of") and arguments[1] == room:
            lines.append(f"{name.removesuffix('_of')} {arguments[0]}")
        elif name in ("at", "in", "on") and arguments[0] in seen and arguments[1] in ({room} | here):
            places = {"at": "here", "in": f"in {arguments[1]}", "on": f"on {arguments[1]}"}
            lines.append(f"{arguments[0]} {'carried' if arguments[1] == 'I' else places[name]}")
        elif name in ("open", "closed", "locked") and arguments[0] in seen:
            lines.append(f"{arguments[0]} {name}")
    return "\n".join(lines)
