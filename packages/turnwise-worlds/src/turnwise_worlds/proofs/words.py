"""What a policy reads and writes: states as text, and the names of tactics.

A state is shown as its first open goal. The **terse** style is one line: every hypothesis closed by `;`, then `|-` and
the conclusion. A hypothesis is called by the last word of what it says and a number, in one word, so that a model that
learns from nothing has to learn no more than which words begin like the goal: ` p > q2 ; p0 ; |- q`. Symbols are `>`,
`&`, `|`, `F` (false), `=`, and those of terms (`*`, `inv`, `e`, `++`, `::`, `rev`, `nil`); each symbol and name has one
space before it. The **full** style is Coq's: a line `c : p -> q` for each hypothesis, then `|- q`, with ` (2 goals)`
behind it where several are open. A tactic is a call: `split` without arguments, `destruct name = h`, `apply name = q2`.
New hypotheses get the first names of the theorem's own list (`Theorem.names`) that the goal does not use. A tactic that
does not apply is answered by `no` and the unchanged state. `format_state` and `format_tactic` write these, `TACTICS`
lists tactics with their Coq sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from turnwise_worlds.proofs.kernel.formula import Formula
from turnwise_worlds.proofs.syntax import Style, format_formula

NAMES = tuple("abcdefghijkl")
"""Names of hypotheses in generated theorems."""
ATOMS = tuple("pqrstuvwxyz")
"""Propositions of generated theorems."""
ELEMENTS = ("m", "n", "o", *ATOMS)
"""Elements of generated equations."""
NUMBERS = {name: str(number) for number, name in enumerate(NAMES)}
"""What stands for a name in the terse style."""
REFUSED = " no"
"""What a tactic that does not apply is answered, before the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TacticWord:
    """One tactic."""

    coq: str
    """The Coq sentence; `{name}` is its argument, `{first}` and `{second}` are names of new hypotheses."""
    takes_name: bool = False
    """Whether it is called with the name of a hypothesis or law."""


TACTICS: Mapping[str, TacticWord] = {
    "intro": TacticWord(coq="intro {first}."),
    "apply": TacticWord(coq="apply {name}.", takes_name=True),
    "split": TacticWord(coq="split."),
    "left": TacticWord(coq="left."),
    "right": TacticWord(coq="right."),
    "destruct": TacticWord(coq="destruct {name} as [{first} {second}].", takes_name=True),
    "exfalso": TacticWord(coq="exfalso."),
    "contradict": TacticWord(coq="apply NNPP; intro {first}."),
    "rewrite": TacticWord(coq="rewrite {name}.", takes_name=True),
    "rewrite_back": TacticWord(coq="rewrite <- {name}.", takes_name=True),
    "reflexivity": TacticWord(coq="reflexivity."),
}
"""Tactics by name. `destruct` takes a conjunction apart (two hypotheses in one goal), a disjunction (two goals, one
hypothesis each, `[{first} | {second}]` in Coq) or `F` (no goal)."""
PROPOSITIONAL = ("intro", "apply", "split", "left", "right", "destruct", "exfalso", "contradict")
EQUATIONAL = ("rewrite", "rewrite_back", "apply", "reflexivity")


@dataclass(frozen=True, slots=True)
class Tactic:
    """A call of a tactic."""

    word: str
    """A name of `TACTICS`."""
    name: str = ""
    """The hypothesis it uses; empty where it takes none."""


def format_tactic(tactic: Tactic) -> str:
    """Write a tactic as small models call it: `apply name = q2`."""
    return tactic.word + (f" name = {tactic.name}" if tactic.name else "")


def refer(name: str, said: str) -> str:
    """Return what a hypothesis is called in the terse style, in which `said` is what it says."""
    last = said.split()[-1]
    return f"{last}{'h' if last[-1].isdigit() else ''}{NUMBERS.get(name, name)}"


def find_name(called: str, hypotheses: Iterable[tuple[str, str]]) -> str:
    """Return the name of the hypothesis that is called so, of names and what they say; what calls none is a name."""
    return next((name for name, said in hypotheses if refer(name, said) == called), called)


def list_terse(hypotheses: Iterable[tuple[str, str]]) -> str:
    """Write hypotheses, names and what they say, in the terse style."""
    return "".join(f" {' '.join([*said.split()[:-1], refer(name, said)])} ;" for name, said in hypotheses)


def format_state(hypotheses: Iterable[tuple[str, Formula]], conclusion: Formula, num_goals: int, style: Style) -> str:
    """Write a goal, the first of `num_goals`, as the module's text says. Hypotheses keep their order."""
    goal = format_formula(conclusion, style)
    shown = [(name, format_formula(formula, style)) for name, formula in hypotheses]
    if style == "terse":
        return f"{list_terse(shown)} |- {goal}"
    lines = [f"{name} : {formula}" for name, formula in shown]
    return "\n".join([*lines, f"|- {goal}" + (f" ({num_goals} goals)" if num_goals > 1 else "")])


def pick_names(pool: Sequence[str], used: Iterable[str], count: int) -> tuple[str, ...]:
    """Return the first `count` names of a pool that are not used; where it is empty, its first name with a number."""
    taken = set(used)
    free = [name for name in pool if name not in taken]
    number = 0
    while len(free) < count:
        number += 1
        name = f"{pool[0]}{number}"
        if name not in taken and name not in free:
            free.append(name)
    return tuple(free[:count])
