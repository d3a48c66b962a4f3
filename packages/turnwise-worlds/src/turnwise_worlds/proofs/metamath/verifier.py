"""A verifier of Metamath databases, by the specification in the Metamath book (section 4, and appendix B for compressed
proofs). It shares no code with the kernel or the exporter.

Files are not included (`$[`), and a proof with unknown steps (`?`) is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

Expression = tuple[str, ...]
Pair = tuple[str, str]


class Unverified(Exception):
    """A database is malformed, or a proof does not prove its statement; the text says where."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """An axiom or a theorem with what it needs."""

    hypotheses: tuple[str, ...]
    """Labels of its mandatory hypotheses, in order."""
    distinct: frozenset[Pair]
    """Pairs of variables that must stay apart."""
    expression: Expression


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is active between `${` and `$}`."""

    variables: frozenset[str] = frozenset()
    floating: tuple[tuple[str, str], ...] = ()
    """Label and variable of the active `$f`."""
    hypotheses: tuple[str, ...] = ()
    """Labels of the active `$f` and `$e`, in order."""
    distinct: frozenset[Pair] = frozenset()


@dataclass(slots=True)
class Database:
    """What was read, and verified."""

    constants: set[str] = field(default_factory=set)
    hypotheses: dict[str, Expression] = field(default_factory=dict)
    """The `$f` and `$e` statements, active or not."""
    essential: set[str] = field(default_factory=set)
    assertions: dict[str, Assertion] = field(default_factory=dict)
    outermost: _Scope = field(default_factory=_Scope)

    def extend(self, text: str) -> Database:
        """Return a database with more statements, all of whose proofs are verified. Raises Unverified."""
        copy = replace(
            self,
            constants=set(self.constants),
            hypotheses=dict(self.hypotheses),
            essential=set(self.essential),
            assertions=dict(self.assertions),
        )
        copy._read(_split(text))
        return copy

    def _read(self, tokens: Iterator[str]) -> None:
        scopes, scope = [], self.outermost
        label = ""
        for token in tokens:
            match token:
                case "${":
                    scopes.append(scope)
                case "$}":
                    if not scopes:
                        raise Unverified("$} closes nothing")
                    scope = scopes.pop()
                case "$c" | "$v" | "$d":
                    scope = self._declare(scope, token, _take(tokens))
                case "$f" | "$e":
                    scope = self._assume(scope, label, token, _take(tokens))
                case "$a" | "$p":
                    self._assert(scope, label, token, _take(tokens))
                    label = ""
                    continue
                case _:
                    if label or token.startswith("$"):
                        raise Unverified(f"{token[:40]} is not expected after {label[:40] or 'a statement'}")
                    label = token
                    continue
            if label and token not in ("$f", "$e"):
                raise Unverified(f"{label[:40]} is a label of {token}")
            label = ""
        if scopes or label:
            raise Unverified("the text ends inside a scope or statement")
        self.outermost = scope

    def _declare(self, scope: _Scope, kind: str, symbols: Expression) -> _Scope:
        if kind == "$d":
            pairs = frozenset(_order(*pair) for pair in combinations(symbols, 2))
            if any(one == other for one, other in pairs):
                raise Unverified("$d names a variable twice")
            return replace(scope, distinct=scope.distinct | pairs)
        if kind == "$c":
            self.constants |= set(symbols)
        else:
            scope = replace(scope, variables=scope.variables | set(symbols))
        if scope.variables & self.constants:
            raise Unverified("a variable is a constant, too")
        return scope

    def _check_label(self, label: str) -> None:
        if not label or label in self.hypotheses or label in self.assertions:
            raise Unverified(f"label {label[:40]!r} is missing or taken")

    def _check_symbols(self, scope: _Scope, label: str, expression: Expression) -> None:
        known = {variable for _, variable in scope.floating}
        if not expression or expression[0] not in self.constants:
            raise Unverified(f"{label[:40]} does not start with a constant")
        for symbol in expression:
            if symbol not in self.constants and symbol not in known:
                raise Unverified(f"{label[:40]} has the unknown symbol {symbol[:40]}")

    def _assume(self, scope: _Scope, label: str, kind: str, expression: Expression) -> _Scope:
        self._check_label(label)
        if kind == "$f":
            if len(expression) != 2 or expression[0] not in self.constants or expression[1] not in scope.variables:
                raise Unverified(f"{label[:40]} is no type of a variable")
            if any(variable == expression[1] for _, variable in scope.floating):
                raise Unverified(f"{label[:40]} gives a variable a second type")
            scope = replace(scope, floating=(*scope.floating, (label, expression[1])))
        else:
            self._check_symbols(scope, label, expression)
            self.essential.add(label)
        self.hypotheses[label] = expression
        return replace(scope, hypotheses=(*scope.hypotheses, label))

    def _assert(self, scope: _Scope, label: str, kind: str, read: Expression) -> None:
        self._check_label(label)
        expression, proof = read, None
        if kind == "$p":
            if "$=" not in read:
                raise Unverified(f"{label[:40]} has no proof")
            at = read.index("$=")
            expression, proof = read[:at], read[at + 1 :]
        self._check_symbols(scope, label, expression)
        essential = [each for each in scope.hypotheses if each in self.essential]
        used = {symbol for each in (expression, *(self.hypotheses[each] for each in essential)) for symbol in each}
        types = dict(scope.floating)
        needed = tuple(each for each in scope.hypotheses if each in self.essential or types[each] in used)
        distinct = frozenset(pair for pair in scope.distinct if set(pair) <= used)
        made = Assertion(needed, distinct, expression)
        if proof is not None:
            self._verify(scope, label, made, proof)
        self.assertions[label] = made

    def _verify(self, scope: _Scope, label: str, claimed: Assertion, proof: Sequence[str]) -> None:
        stack: list[Expression] = []
        saved: list[Expression] = []
        for step in self._list_steps(scope, label, claimed, proof):
            if isinstance(step, int):
                if step >= len(saved):
                    raise Unverified(f"{label[:40]} uses a step that it did not save")
                stack.append(saved[step])
            elif step == "Z":
                if not stack:
                    raise Unverified(f"{label[:40]} saves nothing")
                saved.append(stack[-1])
            else:
                self._step(scope, label, step[1:], stack)
        if stack != [claimed.expression]:
            raise Unverified(f"{label[:40]} proves {' '.join(stack[-1])[:80] if stack else 'nothing'}")

    def _list_steps(self, scope: _Scope, label: str, claimed: Assertion, proof: Sequence[str]) -> Iterator[str | int]:
        """Yield `=LABEL` for a label, "Z" to save a step, and the number of a saved step."""
        if not proof or proof[0] != "(":
            yield from (f"={step}" for step in proof)
            return
        if ")" not in proof:
            raise Unverified(f"{label[:40]} has an unclosed list of labels")
        end = proof.index(")")
        for each in proof[1:end]:
            if each in claimed.hypotheses or (each in self.hypotheses and each not in scope.hypotheses):
                raise Unverified(f"{label[:40]} lists {each[:40]}, which is mandatory or not active")
        labels = [*claimed.hypotheses, *proof[1:end]]
        number = 0
        for letter in "".join(proof[end + 1 :]):
            if "A" <= letter <= "T":
                number = 20 * number + ord(letter) - ord("A")
                yield f"={labels[number]}" if number < len(labels) else number - len(labels)
                number = 0
            elif "U" <= letter <= "Y":
                number = 5 * number + ord(letter) - ord("U") + 1
            elif letter == "Z" and not number:
                yield "Z"
            else:
                raise Unverified(f"{label[:40]} has {letter!r} in its proof")
        if number:
            raise Unverified(f"{label[:40]} ends inside a number")

    def _step(self, scope: _Scope, label: str, step: str, stack: list[Expression]) -> None:
        if step in self.hypotheses:
            if step not in scope.hypotheses:
                raise Unverified(f"{label[:40]} uses {step[:40]}, which is not active")
            stack.append(self.hypotheses[step])
            return
        used = self.assertions.get(step)
        if used is None:
            raise Unverified(f"{label[:40]} uses {step[:40]}, which is unknown")
        count = len(used.hypotheses)
        if len(stack) < count:
            raise Unverified(f"{label[:40]} has too few steps for {step[:40]}")
        given = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        values: dict[str, Expression] = {}
        for name, found in zip(used.hypotheses, given, strict=True):
            wanted = self.hypotheses[name]
            if name not in self.essential:
                if found[0] != wanted[0]:
                    raise Unverified(f"{label[:40]} gives {step[:40]} a {found[0][:40]} for a {wanted[0]}")
                values[wanted[1]] = found[1:]
            elif _replace(wanted, values) != found:
                raise Unverified(f"{label[:40]} gives {step[:40]} another {name[:40]}")
        self._check_distinct(scope, label, used, values)
        stack.append(_replace(used.expression, values))

    def _check_distinct(self, scope: _Scope, label: str, used: Assertion, values: dict[str, Expression]) -> None:
        known = {variable for _, variable in scope.floating}
        for one, other in used.distinct:
            for left in known & set(values[one]):
                for right in known & set(values[other]):
                    if left == right or _order(left, right) not in scope.distinct:
                        raise Unverified(f"{label[:40]} needs {left} and {right} to be distinct")


def _replace(expression: Expression, values: dict[str, Expression]) -> Expression:
    made: list[str] = []
    for symbol in expression:
        made.extend(values.get(symbol, (symbol,)))
    return tuple(made)


def _order(one: str, other: str) -> Pair:
    return (one, other) if one <= other else (other, one)


def _split(text: str) -> Iterator[str]:
    """Yield the tokens outside of comments."""
    tokens = iter(text.split())
    for token in tokens:
        if token == "$(":
            if not any(each == "$)" for each in tokens):
                raise Unverified("a comment does not end")
            continue
        if token.startswith("$["):
            raise Unverified("a file is included")
        yield token


def _take(tokens: Iterator[str]) -> Expression:
    """Read up to `$.`."""
    read: list[str] = []
    for token in tokens:
        if token == "$.":
            return tuple(read)
        read.append(token)
    raise Unverified("a statement does not end")
