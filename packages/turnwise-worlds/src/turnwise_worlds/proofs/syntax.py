"""Formulas as text, and text as formulas.

    formula   disjunctions, `>` groups to the right:     p & q > r | s > F
    equation  terms; one operator groups to the right:   a * inv a = e

Connectives in the order in which they bind: `&`, `|`, `>`. What the full style writes is read too: `/\\`, `\\/`, `->`,
`False`, and `~ p` for `p > F`. Variables of laws start with `?`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from turnwise.core.errors import DataError
from turnwise_worlds.proofs.kernel.formula import (
    And,
    Applied,
    Atom,
    Constant,
    Equal,
    Falsehood,
    Formula,
    Implies,
    Or,
    Term,
    Variable,
)

Style = Literal["terse", "full"]

MAX_SYMBOLS = 200
"""Symbols of one formula, at most: whatever reads formulas goes as deep as they do."""
OPERATORS = ("*", "++", "::")
FUNCTIONS = ("inv", "rev")
CONSTANTS = ("e", "nil")
"""Constants with a meaning in a theory; every other word of a term is an element of its own."""
_SAME = {"/\\": "&", "\\/": "|", "->": ">", "False": "F"}
_FULL = {"&": "/\\", "|": "\\/", ">": "->", "F": "False"}
_SYMBOL = re.compile(r"\s*(->|/\\|\\/|\+\+|::|[>&|~()=*]|\??[A-Za-z][A-Za-z0-9_]*|\S)")
_WORD = re.compile(r"\??[A-Za-z][A-Za-z0-9_]*")
_BINDS = {Or: 1, And: 2}


def format_formula(formula: Formula, style: Style) -> str:
    """Write a formula; symbols have one space between them."""
    text = _write(formula, 0)
    return " ".join(_FULL.get(word, word) for word in text.split(" ")) if style == "full" else text


def _write(formula: Formula, outer: int) -> str:
    """Write a formula inside one that binds with strength `outer`: 0 `>`, 1 `|`, 2 `&`, 3 the left side of `&`."""
    match formula:
        case Atom(name):
            return name
        case Falsehood():
            return "F"
        case Equal(left, right):
            return f"{_write_term(left)} = {_write_term(right)}"
        case Implies(left, right):
            text, strength = f"{_write(left, 1)} > {_write(right, 0)}", 0
        case Or(left, right):
            text, strength = f"{_write(left, 2)} | {_write(right, 1)}", 1
        case And(left, right):
            text, strength = f"{_write(left, 3)} & {_write(right, 2)}", 2
    return f"( {text} )" if strength < outer else text


def _write_term(term: Term, *, is_inside: bool = False) -> str:
    if isinstance(term, Constant):
        return term.name
    if isinstance(term, Variable):
        return f"?{term.name}"
    if len(term.arguments) == 1:
        text = f"{term.operation} {_write_term(term.arguments[0], is_inside=True)}"
    else:
        text = f" {term.operation} ".join(_write_term(argument, is_inside=True) for argument in term.arguments)
    return f"( {text} )" if is_inside else text


def parse_formula(text: str) -> Formula:
    """Read a formula. Raises DataError naming what is wrong and where."""
    symbols = [_SAME.get(symbol, symbol) for symbol in _SYMBOL.findall(text)]
    if len(symbols) > MAX_SYMBOLS:
        raise DataError(f"a formula has {len(symbols)} symbols; use at most {MAX_SYMBOLS}")
    reader = _Reader(symbols, text)
    formula = reader.read_implication()
    if reader.next is not None:
        raise reader.fail("the end or a connective")
    return formula


@dataclass(slots=True)
class _Reader:
    """Recursive descent over the symbols of a text."""

    symbols: list[str]
    text: str
    at: int = 0

    @property
    def next(self) -> str | None:
        return self.symbols[self.at] if self.at < len(self.symbols) else None

    def fail(self, wanted: str) -> DataError:
        found = "the end" if self.next is None else repr(self.next)
        return DataError(f"formula {self.text[:80]!r}: {found} at symbol {self.at + 1} where {wanted} is expected")

    def take(self, symbol: str) -> bool:
        if self.next != symbol:
            return False
        self.at += 1
        return True

    def read_implication(self) -> Formula:
        left = self.read_disjunction()
        return Implies(left, self.read_implication()) if self.take(">") else left

    def read_disjunction(self) -> Formula:
        left = self.read_conjunction()
        return Or(left, self.read_disjunction()) if self.take("|") else left

    def read_conjunction(self) -> Formula:
        left = self.read_single()
        return And(left, self.read_conjunction()) if self.take("&") else left

    def read_single(self) -> Formula:
        if self.take("~"):
            return Implies(self.read_single(), Falsehood())
        if self.take("F"):
            return Falsehood()
        start = self.at
        if self.take("("):
            inner = self._try_formula()
            if inner is not None and self.next not in ("=", *OPERATORS):
                return inner
            self.at = start
        term = self.read_term()
        if self.take("="):
            return Equal(term, self.read_term())
        if isinstance(term, Constant):
            return Atom(term.name)
        raise self.fail("=")

    def _try_formula(self) -> Formula | None:
        """Read what stands in parentheses if it is a formula; None if it is a term."""
        try:
            inner = self.read_implication()
        except DataError:
            depth = 0
            for symbol in self.symbols[self.at :]:
                if symbol in ("=", ">", "&", "|", "~"):
                    raise
                depth += {"(": 1, ")": -1}.get(symbol, 0)
                if depth < 0:
                    return None
            raise
        if not self.take(")"):
            raise self.fail("a closing parenthesis")
        return inner

    def read_term(self) -> Term:
        left = self._read_factor()
        for operator in OPERATORS:
            if self.take(operator):
                return Applied(operator, (left, self.read_term()))
        return left

    def _read_factor(self) -> Term:
        if self.take("("):
            inner = self.read_term()
            if not self.take(")"):
                raise self.fail("a closing parenthesis")
            return inner
        word = self.next
        if word is None or word == "F" or not _WORD.fullmatch(word):
            raise self.fail("a word")
        self.at += 1
        if word in FUNCTIONS:
            return Applied(word, (self._read_factor(),))
        return Variable(word[1:]) if word.startswith("?") else Constant(word)
