"""Questions of two relations, and the world that answers look-ups. Pure functions.

`birthplace of author of kalo` needs `author kalo`, then `birthplace` of the result: the plan is the question reversed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from turnwise.core.seeds import derive_seed

RELATIONS = ("author", "birthplace", "capital", "child", "editor", "founder", "leader", "owner")
ENTITIES = tuple(
    first + second for first in ("ka", "lo", "mi", "nu", "pe", "ra") for second in ("bo", "di", "fe", "gu")
)
NO_RELATION = "none"

Plan = tuple[str, ...]
"""Relations in the order in which they must be looked up."""


def look_up(seed: int, relation: str, entity: str) -> str:
    """Return the one entity with this relation to `entity` in the world of a seed; "nothing" for unknown words."""
    if relation not in RELATIONS or entity not in ENTITIES:
        return "nothing"
    return ENTITIES[derive_seed(seed, "look up", relation, entity) % len(ENTITIES)]


def draw_plan(random: Random) -> Plan:
    """Draw two different relations."""
    return tuple(random.sample(RELATIONS, 2))


def format_question(plan: Plan, entity: str) -> str:
    """Write a question: `birthplace of author of kalo` for the plan (author, birthplace)."""
    return " of ".join((*reversed(plan), entity))


def parse_question(text: str) -> tuple[Plan, str]:
    """Parse a question, the inverse of `format_question`."""
    *relations, entity = text.split(" of ")
    return tuple(reversed(relations)), entity


def format_plan(plan: Sequence[str]) -> str:
    """Write a plan: `author ; birthplace`."""
    return " ; ".join(plan)


def parse_plan(text: str) -> Plan:
    """Return the first two relations named in a text; "none" for missing ones, so that every plan has equally many
    words."""
    words = [word for word in text.split() if word in RELATIONS][:2]
    return tuple([*words, NO_RELATION, NO_RELATION][:2])
