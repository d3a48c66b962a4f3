"""Generated problems that need computing: numbers, question, answer, and programs that find it or fail.

Pure. All operands have two digits and all answers are below 100, so that a model trained from scratch can copy each as
one token, but cannot compute them. Programs are text here and are never run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from random import Random

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split

Parts = tuple[int | str, ...]
"""Values that fill a kind's templates: numbers, and operators where they vary."""

SINGULAR_SHARE = 0.5
"""Share of equations whose coefficient has no inverse: the obvious program raises, which the question does not
reveal."""
MAX_DRAWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of problem. Templates are filled with `str.format(*parts)`."""

    draw: Callable[[Random], Parts]
    question: str
    answer: Callable[..., int]
    """Computes the answer from the parts."""
    solution: str
    """A program that always prints the answer."""
    attempt: str
    """The obvious program."""
    slip: str | None
    """The obvious program with this kind's typical mistake; None if `attempt` is itself enough of a trap."""
    error: str
    """The last line of the traceback of `slip`, or else of `attempt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of a kind."""

    kind: str
    parts: Parts

    @property
    def question(self) -> str:
        """The question."""
        return KINDS[self.kind].question.format(*self.parts)

    @property
    def answer(self) -> int:
        """The right answer, 0 to 99."""
        return KINDS[self.kind].answer(*self.parts)

    @property
    def solution(self) -> str:
        """A program that always prints the answer."""
        return KINDS[self.kind].solution.format(*self.parts)

    @property
    def attempt(self) -> str:
        """The obvious program; on some equations it raises."""
        return KINDS[self.kind].attempt.format(*self.parts)

    @property
    def slip(self) -> str | None:
        """The obvious program with a mistake that always raises; None for kinds without one."""
        template = KINDS[self.kind].slip
        return None if template is None else template.format(*self.parts)


def _number(random: Random) -> int:
    return random.randrange(10, 100)


def _draw_chain(random: Random) -> Parts:
    return _number(random), "*", _number(random), random.choice("+-"), _number(random)


def _draw_numbers(random: Random) -> Parts:
    return tuple(_number(random) for _ in range(4))


def _draw_equation(random: Random) -> Parts:
    """Draw coefficient, modulus, and a right-hand side for which there is a solution."""
    singular = random.random() < SINGULAR_SHARE
    while True:
        factor, modulus = _number(random), _number(random)
        if (gcd(factor, modulus) > 1) == singular:
            return factor, modulus, factor * random.randrange(modulus) % modulus


def _answer_chain(first: int, _times: str, second: int, sign: str, third: int) -> int:
    return (first * second + (third if sign == "+" else -third)) % 100


def _answer_equation(factor: int, modulus: int, right: int) -> int:
    return next(x for x in range(modulus) if factor * x % modulus == right)


def _answer_count(below: int, modulus: int, bound: int, _: int) -> int:
    return sum(x * x % modulus < bound for x in range(below))


KINDS: Mapping[str, Kind] = {
    "chain": Kind(
        draw=_draw_chain,
        question="What are the last two digits of {0} {1} {2} {3} {4} ?",
        answer=_answer_chain,
        solution="print( ( {0} {1} {2} {3} {4} ) % 100 )",
        attempt="print( ( {0} {1} {2} {3} {4} ) % 100 )",
        slip="pirnt( ( {0} {1} {2} {3} {4} ) % 100 )",
        error="NameError: name 'pirnt' is not defined",
    ),
    "word": Kind(
        draw=_draw_numbers,
        question=(
            "A shop gets {0} boxes of {1} pens and sells {2} pens . It packs the rest in bags of {3} . How "
            "many pens are left over ?"
        ),
        answer=lambda boxes, pens, sold, size: (boxes * pens - sold) % size,
        solution="print( ( {0} * {1} - {2} ) % {3} )",
        attempt="print( ( {0} * {1} - {2} ) % {3} )",
        slip="print( ( {0} * {1} - {2} ) % {3}",
        error="SyntaxError: '(' was never closed",
    ),
    "power": Kind(
        draw=_draw_numbers,
        question="What is {0} to the power {1} modulo {2} ?",
        answer=lambda base, exponent, modulus, _: pow(base, exponent, modulus),
        solution="print( pow( {0} , {1} , {2} ) )",
        attempt="print( pow( {0} , {1} , {2} ) )",
        slip="print( {0} ** {1} % 0 )",
        error="ZeroDivisionError: integer modulo by zero",
    ),
    "count": Kind(
        draw=_draw_numbers,
        question="For how many x below {0} is x * x modulo {1} less than {2} ?",
        answer=_answer_count,
        solution="print( sum( x * x % {1} < {2} for x in range( {0} ) ) )",
        attempt="print( sum( x * x % {1} < {2} for x in range( {0} ) ) )",
        slip="print( sum( y * y % {1} < {2} for x in range( {0} ) ) )",
        error="NameError: name 'y' is not defined",
    ),
    "equation": Kind(
        draw=_draw_equation,
        question="What is the smallest x with {0} * x modulo {1} equal to {2} ?",
        answer=_answer_equation,
        solution="print( min( x for x in range( {1} ) if {0} * x % {1} == {2} ) )",
        attempt="print( pow( {0} , -1 , {1} ) * {2} % {1} )",
        slip=None,
        error="ValueError: base is not invertible for the given modulus",
    ),
}
"""Every kind by name. Questions and programs have spaces around numbers, so that a number is the same token
everywhere."""


def split_of(question: str) -> Split:
    """Return the split of a question, by its hash: a quarter of all questions is held out, and no question is in
    both."""
    return "heldout" if hashlib.sha256(question.encode()).digest()[0] < 64 else "train"


def build_problem(kind: str, split: Split, random: Random) -> Problem:
    """Build a problem of a kind and split, with numbers drawn from `random`.

    Raises ConfigError if `MAX_DRAWS` draws yield none.
    """
    for _ in range(MAX_DRAWS):
        problem = Problem(kind=kind, parts=KINDS[kind].draw(random))
        if split_of(problem.question) == split:
            return problem
    raise ConfigError(
        f"no {split} problem of kind {kind!r} in {MAX_DRAWS} draws; drop the kind from environment.args.kinds"
    )
