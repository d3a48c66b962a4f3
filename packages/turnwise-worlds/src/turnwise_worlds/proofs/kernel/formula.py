"""Terms and formulas: propositional connectives over atoms and equations.

Negation is no connective: `not p` is `p -> false`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """A fixed element, such as an element of a group."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """Stands for every term; only laws have variables."""

    name: str


@dataclass(frozen=True, slots=True)
class Applied:
    """An operation applied to terms."""

    operation: str
    arguments: tuple[Term, ...]


Term = Constant | Variable | Applied


@dataclass(frozen=True, slots=True)
class Atom:
    """A proposition of which nothing is known."""

    name: str


@dataclass(frozen=True, slots=True)
class Falsehood:
    """The proposition that never holds."""


@dataclass(frozen=True, slots=True)
class Implies:
    """If `left`, then `right`."""

    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class And:
    """Both."""

    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Or:
    """One or the other, or both."""

    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class Equal:
    """Two terms are equal; with variables, for all of their values."""

    left: Term
    right: Term


Formula = Atom | Falsehood | Implies | And | Or | Equal


def walk_terms(term: Term) -> Iterator[Term]:
    """Yield a term and its parts: itself first, then those of its arguments from left to right."""
    yield term
    if isinstance(term, Applied):
        for argument in term.arguments:
            yield from walk_terms(argument)


def substitute(term: Term, values: Mapping[str, Term]) -> Term:
    """Return a term with its variables replaced; those without a value stay."""
    if isinstance(term, Variable):
        return values.get(term.name, term)
    if isinstance(term, Applied):
        return Applied(term.operation, tuple(substitute(argument, values) for argument in term.arguments))
    return term


def match(pattern: Term, term: Term, values: Mapping[str, Term]) -> dict[str, Term] | None:
    """Return `values` with those variables added that make `pattern` equal to `term`; None if nothing does."""
    if isinstance(pattern, Variable):
        if pattern.name in values:
            return dict(values) if values[pattern.name] == term else None
        return {**values, pattern.name: term}
    if not isinstance(pattern, Applied):
        return dict(values) if pattern == term else None
    if not isinstance(term, Applied) or (pattern.operation, len(pattern.arguments)) != (
        term.operation,
        len(term.arguments),
    ):
        return None
    found: dict[str, Term] | None = dict(values)
    for part, whole in zip(pattern.arguments, term.arguments, strict=True):
        found = None if found is None else match(part, whole, found)
    return found


def replace_all(term: Term, old: Term, new: Term) -> Term:
    """Return a term with every occurrence of `old` replaced by `new`; what is inside an occurrence is not looked at."""
    if term == old:
        return new
    if isinstance(term, Applied):
        return Applied(term.operation, tuple(replace_all(argument, old, new) for argument in term.arguments))
    return term
