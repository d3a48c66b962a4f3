"""The world of the step benchmark: a generated register, the tools that read it, questions, and the reward. Standard
library only.

Both sides of `benchmarks/step.py` import it: Turnwise through `step_family.py`, TRL through `peers/trl_step.py`. A
question takes two calls that follow each other: "the `colour` of the `friend` of `bakfol`" asks who the friend is, then
for the friend's colour. Every entity and value is an opaque word of two syllables. The tools are plain functions with
type hints and Google docstrings, of which both sides make the same JSON schemas; with them a prompt has about 300
tokens. Only `find` is of use."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import TypedDict


class Question(TypedDict):
    """One task, as plain data."""

    text: str
    """What the user says."""
    entity: str
    field: str
    """The field that is asked for, of the entity's friend."""
    answer: str


SYSTEM = "Answer from the register. Find the friend first, then the field of the friend. Reply with one word."
FIELDS = ("colour", "city", "trade")
_ENTITIES = tuple(
    map(
        "".join,
        product(
            ("ba", "de", "ki", "lo", "mu", "na", "pe", "ri"), ("bak", "den", "fol", "gim", "lur", "mip", "nax", "ros")
        ),
    )
)
_VALUES = tuple(
    map("".join, product(("al", "bel", "cor", "dan"), ("dor", "mar", "wyn", "ton", "vik", "ran", "sk", "lad")))
)


def _build_register() -> dict[str, dict[str, str]]:
    random = Random("register")
    return {
        entity: {
            "friend": random.choice([e for e in _ENTITIES if e != entity]),
            **{field: random.choice(_VALUES) for field in FIELDS},
        }
        for entity in _ENTITIES
    }


REGISTER = _build_register()
"""Entity -> field -> value; the same on both sides and in every run."""


def find(entity: str, field: str) -> str:
    """
    Look up one field of one entity in the register.

    Args:
        entity: The name of the entity.
        field: One of friend, colour, city, trade.
    """
    if entity not in REGISTER:
        return "unknown entity"
    return REGISTER[entity].get(field, "unknown field")


def count_entities() -> int:
    """
    Count the entities of the register.
    """
    return len(REGISTER)


TOOLS: tuple[Callable[..., object], ...] = (find, count_entities)


def build_question(seed: int, index: int) -> Question:
    """The question number `index` of a run with this `seed`."""
    random = Random(f"{seed}/{index}")
    entity, field = random.choice(_ENTITIES), random.choice(FIELDS)
    return Question(
        text=f'What is the "{field}" of the "friend" of "{entity}"?',
        entity=entity,
        field=field,
        answer=REGISTER[REGISTER[entity]["friend"]][field],
    )


def compute_reward(replies: Sequence[str], answer: str) -> float:
    """1.0 if the last of the model's replies (their text, without calls) is exactly the answer, else 0.0."""
    return float(bool(replies) and replies[-1].strip() == answer)


def build_call(question: Question, results: Sequence[str]) -> dict[str, str]:
    """The arguments of the right call, given the results of earlier calls: none, or the friend's name."""
    return (
        {"entity": results[0], "field": question["field"]}
        if results
        else {"entity": question["entity"], "field": "friend"}
    )


def build_slip(random: Random, question: Question, results: Sequence[str]) -> dict[str, str]:
    """The arguments of a plausible wrong call."""
    arguments = build_call(question, results)
    if random.random() < 0.5:
        arguments["entity"] = random.choice([e for e in _ENTITIES if e != arguments["entity"]])
    else:
        arguments["field"] = random.choice([f for f in (*FIELDS, "friend") if f != arguments["field"]])
    return arguments


def draw_value(random: Random) -> str:
    """Any value of the register's fields."""
    return random.choice(_VALUES)


def to_call_json(arguments: dict[str, str]) -> str:
    """A call of `find` as the model writes it inside its tags."""
    return json.dumps({"name": "find", "arguments": arguments})
