"""Tactics as short calls, and states in one line, for small models: the words of the family `proofs`, and those of
induction.

    c : p -> q, a : p |- q        p > q2 ; p0 ; |- q
    apply c.                      apply name = q2
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from turnwise_worlds.proofs.words import TACTICS, Tactic, TacticWord, list_terse, pick_names
from turnwise_worlds.proving.prover import Goal, TacticRefused

SORTS = ("Prop", "nat", "list nat")
"""Types of variables, which the terse style does not list: the goal names those that matter."""
WORDS: Mapping[str, TacticWord] = {
    **{word: tactic for word, tactic in TACTICS.items() if word != "contradict"},
    "induction": TacticWord(coq="induction {name} as [|{name} {first}].", takes_name=True),
    "simpl": TacticWord(coq="simpl."),
}
"""The tactics; `contradict` needs an axiom."""
DESCRIPTIONS: Mapping[str, str] = {
    "intro": "Assume the left side of an implication, and prove the right side.",
    "apply": "Use a hypothesis that is the goal, or an implication that ends in it.",
    "split": "Prove both sides of a conjunction, the left one first.",
    "left": "Prove the left side of a disjunction.",
    "right": "Prove the right side of a disjunction.",
    "destruct": "Take a hypothesis apart.",
    "exfalso": "Prove False in place of the goal.",
    "rewrite": "Replace the left side of an equation by its right side.",
    "rewrite_back": "Replace the right side of an equation by its left side.",
    "reflexivity": "Prove an equation whose sides compute to the same.",
    "induction": "Prove the goal for the smallest value of a variable, then for the next from that before.",
    "simpl": "Compute.",
}
_SYMBOLS = {"->": ">", "/\\": "&", "\\/": "|", "False": "F"}
_TOKEN = re.compile(r"->|/\\|\\/|<>|::|\+\+|[\w'.]+|\S")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_']{0,30}", re.ASCII)
_OR, _AND = "\\/", "/\\"
_LOOSER = {_OR: ("->", "<->", ","), _AND: ("->", "<->", ",", _OR)}
"""What binds less than a connective, so that a formula with it has another head."""


def to_terse(text: str) -> str:
    """Write a term of Coq with one space between symbols."""
    return " ".join(_SYMBOLS.get(token, token) for token in _TOKEN.findall(text))


def tell_hypotheses(goal: Goal) -> list[tuple[str, str]]:
    """Return the names of hypotheses and what they say in the terse style, which leaves variables out."""
    return [(name, to_terse(type_)) for name, type_ in goal.hypotheses if type_ not in SORTS]


def show_terse(goal: Goal) -> str:
    """Write a goal in the terse style."""
    return f"{list_terse(tell_hypotheses(goal))} |- {to_terse(goal.conclusion)}"


def write_sentence(tactic: Tactic, goal: Goal, pool: Sequence[str]) -> str:
    """Return the Coq sentence of a tactic; names of new hypotheses come from `pool`.

    Raises TacticRefused if the tactic is unknown, meant for another goal, or its argument is no name.
    """
    word = WORDS.get(tactic.word)
    if word is None or (word.takes_name and not _NAME.fullmatch(tactic.name)):
        raise TacticRefused("vernacular", f"{tactic.word[:20]} {tactic.name[:20]} is no tactic")
    types = dict(goal.hypotheses)
    first, second = pick_names(pool, types, 2)
    coq, type_ = word.coq, types.get(tactic.name, "")
    if tactic.word == "destruct":
        coq = f"destruct {{name}}{_find_pattern(type_)}."
    elif tactic.word == "induction" and type_.startswith("list"):
        coq = "induction {name} as [|{second} {name} {first}]."
    return coq.format(name=tactic.name, first=first, second=second)


def _find_pattern(type_: str) -> str:
    """Return the names that taking apart a hypothesis of a type gives."""
    depth, top = 0, set()
    for token in _TOKEN.findall(type_):
        depth += (token in "([") - (token in ")]")
        if depth == 0:
            top.add(token)
    for connective, pattern in ((_OR, " as [{first} | {second}]"), (_AND, " as [{first} {second}]")):
        if connective in top and not top.intersection(_LOOSER[connective]):
            return pattern
    return ""
