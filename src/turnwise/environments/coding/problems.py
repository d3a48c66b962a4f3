"""Generated problems: a function, examples of it to see, and hidden ones that a program for the seen ones fails."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.environments.coding.functions import Function, Kind, Numbers, Value, readings, space_of

MAX_DRAWS = 500
MAX_VISIBLE = 6
CHOICES = 12
"""Inputs among which a further example is the one that refutes most readings."""
HIDDEN_RANGE = 99
"""Largest magnitude in a hidden input."""

Example = tuple[Numbers, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A function by examples."""

    function: Function
    visible: tuple[Example, ...]
    """Together only the function agrees with them, of all of its kind. The first alone leaves several readings, and the
    last is of a longer list than the others."""
    hidden: tuple[Example, ...]
    """Lists of other lengths, negative and large numbers, the same number twice, and each reading of the first example
    but the right one refuted."""


def build_problem(kind: Kind, split: Split, random: Random, *, length: int, num_hidden: int) -> Problem:
    """A problem whose function belongs to the split; visible lists have `length` numbers from 0 to 9.

    Raises ConfigError when `MAX_DRAWS` draws give none.
    """
    space = space_of(kind)
    functions = [f for f in random.choice(space.groups) if space.split[f] == split]
    for _ in range(MAX_DRAWS):
        function = random.choice(functions)
        first = _example(function, _draw_visible(random, length))
        left = [f for f in readings(kind, [first]) if f != function]
        if len(left) < space.num_readings - 1:
            continue
        visible = _refute(function, left, [first], random, length)
        hidden = _draw_hidden(function, left, random, length, num_hidden)
        if visible and hidden:
            return Problem(function=function, visible=visible, hidden=hidden)
    raise ConfigError(f"no {split} problem of kind {kind!r} in {MAX_DRAWS} draws; change environment.args.length")


def _refute(
    function: Function, left: list[Function], visible: list[Example], random: Random, length: int
) -> tuple[Example, ...]:
    """Examples until no other function is left, and one of a longer list; none where some cannot be refuted."""
    for _ in range(MAX_VISIBLE):
        if not left:
            return (*visible, _example(function, _draw_visible(random, length + 1)))
        inputs = [_draw_visible(random, length) for _ in range(CHOICES)]
        best = min(inputs, key=lambda x: sum(f.compute(x) == function.compute(x) for f in left))
        still = [f for f in left if f.compute(best) == function.compute(best)]
        if len(still) < len(left):
            visible, left = [*visible, _example(function, best)], still
    return ()


def _draw_hidden(
    function: Function, left: list[Function], random: Random, length: int, count: int
) -> tuple[Example, ...]:
    """Hidden examples; none where they do not refute what the first visible one leaves."""
    examples = [_example(function, _draw_edge(number, random, length)) for number in range(count)]
    is_sharp = all(any(f.compute(x) != value for x, value in examples) for f in left)
    return tuple(examples) if is_sharp else ()


def _draw_visible(random: Random, length: int) -> Numbers:
    return tuple(random.sample(range(10), length))


def _draw_edge(number: int, random: Random, length: int) -> Numbers:
    """The number-th hidden input: a list with its smallest number twice first, then lists of any length from 2 on."""
    size = length + 1 if number == 0 else random.randint(2, 2 * length + 1)
    x = [random.randint(-HIDDEN_RANGE, HIDDEN_RANGE) for _ in range(size)]
    if number == 0:
        one, other = random.sample(range(size), 2)
        x[one] = x[other] = min(x)
    return tuple(x)


def _example(function: Function, x: Numbers) -> Example:
    return x, function.compute(x)
