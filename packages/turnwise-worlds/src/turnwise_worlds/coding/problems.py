"""Generated problems: a function, visible examples of it, and hidden ones that refute programs made only for the
visible ones."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise_worlds.coding.functions import Example, Function, Kind, Numbers, readings, space_of

MAX_DRAWS = 500
MAX_VISIBLE = 6
CHOICES = 12
"""Number of candidate inputs for a further example; the one that refutes most readings is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A function given by examples."""

    function: Function
    visible: tuple[Example, ...]
    """Visible examples. Of all functions of its kind, only this one agrees with all of them. The first alone leaves
    several readings; the last is of a different sort, a longer list or a smaller number first."""
    hidden: tuple[Example, ...]
    """Hidden examples, edge cases: negative and large numbers, zero, the same number twice, lists of other lengths. No
    input is visible, and together they refute every reading of the first example except the right one."""


def build_problem(kind: Kind, split: Split, random: Random, *, num_hidden: int) -> Problem:
    """Build a problem whose function belongs to the split. Raises ConfigError if `MAX_DRAWS` draws yield none."""
    space = space_of(kind)
    functions = [f for f in random.choice(space.groups) if space.split[f] == split]
    for _ in range(MAX_DRAWS):
        function = random.choice(functions)
        first = _example(function, (2, 2) if kind == "arithmetic" else _draw_visible(kind, random))
        left = [f for f in readings(kind, [first]) if f != function]
        visible = _refute(function, left, [first], random) if left else ()
        hidden = tuple(_example(function, _draw_hidden(kind, number, random)) for number in range(num_hidden))
        is_sharp = all(any(f.compute(x) != value for x, value in hidden) for f in left)
        if visible and is_sharp and not set(dict(visible)) & set(dict(hidden)):
            return Problem(function=function, visible=visible, hidden=hidden)
    raise ConfigError(f"no {split} problem of kind {kind!r} in {MAX_DRAWS} draws; raise environment.args.hidden_tests")


def _refute(function: Function, left: list[Function], visible: list[Example], random: Random) -> tuple[Example, ...]:
    """Return examples that leave no other function, plus one of another sort; none if `MAX_VISIBLE` examples refute too
    few."""
    for _ in range(MAX_VISIBLE):
        if not left:
            x = _draw_visible(function.kind, random)
            last = x[::-1] if function.kind == "arithmetic" else (*x, *_draw_visible(function.kind, random)[:2])
            return (*visible, _example(function, last))
        inputs = [_draw_visible(function.kind, random) for _ in range(CHOICES)]
        best = min(inputs, key=lambda x: sum(f.compute(x) == function.compute(x) for f in left))
        left = [f for f in left if f.compute(best) == function.compute(best)]
        visible = [*visible, _example(function, best)]
    return ()


def _draw_visible(kind: Kind, random: Random) -> Numbers:
    """Draw numbers of which the larger comes first, or three different ones."""
    if kind == "arithmetic":
        y = random.randint(2, 4)
        return random.randint(y + 1, 9), y
    return tuple(random.sample(range(10), 3))


def _draw_hidden(kind: Kind, number: int, random: Random) -> Numbers:
    """Draw the number-th hidden input."""
    if kind == "arithmetic":
        x = (-random.randint(1, 9), 0, random.randint(10, 30), random.randint(-30, 30))[min(number, 3)]
        return x, random.randint(1, 7)
    x = random.randint(-99, 99)
    rest = [random.randint(-99, 99) for _ in range((2, 0, 5)[number] if number < 3 else random.randint(1, 7))]
    return (x, x, *rest) if number < 2 else tuple(rest)


def _example(function: Function, x: Numbers) -> Example:
    return x, function.compute(x)
