"""Generated problems: a program with one bug, decoys in the other module, and examples of what every function gives.

Operators, constants and names are drawn at random, so that code alone does not tell which of its readings is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from turnwise.core.protocols import Split
from turnwise.environments.repair.bugs import NUMBERS, plant_bug, stale_comment, unusual_code
from turnwise.environments.repair.programs import (
    BOOLEANS,
    COMPARISONS,
    OPERATORS,
    Code,
    Function,
    Line,
    Modules,
    compute,
    to_code,
    to_intent,
)

NAMES = tuple(f"{first}{vowel}{last}" for first in "bdgkrvz" for vowel in "aiu" for last in "lmx")
"""The names of functions, each a word that a tokenizer can have as one token."""
BUGGY_NAMES: dict[Split, tuple[str, ...]] = {"train": NAMES[16:], "heldout": NAMES[:16]}
"""The names that the function with the bug may have. The other functions may have any, so that held-out names are known
from training, but never for a function that is to be repaired."""
LETTERS = "abcdeknpxyz"
"""The names of variables."""
MODULES = ("m1", "m2")
LARGEST = 99
"""Of the values that a function may give."""
SHOWN_EXAMPLES = 2
"""Examples of a function that its test has; the rest are for grading alone."""
NUM_EXAMPLES = 6

Example = tuple[tuple[int, ...], int]
"""Arguments, and what the function gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A program with one bug."""

    modules: Modules
    """As the agent finds it."""
    function: str
    """The name of the function with the bug."""
    line: int
    """The index of the line with the bug."""
    code: Code
    """What belongs there."""
    raises: bool
    """Whether the first failing example raises instead of giving a wrong value."""
    examples: dict[str, tuple[Example, ...]]
    """`NUM_EXAMPLES` of every function, the first `SHOWN_EXAMPLES` of which its test has."""


def build_problem(kind: str, split: Split, random: Random, *, num_functions: tuple[int, int], decoys: bool) -> Problem:
    """A problem with a bug of that kind; `num_functions` are the smallest and the largest number of functions."""
    names = random.sample(NAMES, random.randint(*num_functions))
    cut = random.randint(2, len(names) - 2)
    buggy = random.randrange(len(names))
    names[buggy] = random.choice([name for name in BUGGY_NAMES[split] if name not in names])
    functions: list[Function] = []
    examples: dict[str, tuple[Example, ...]] = {}
    fault: tuple[int, Code, bool] = (0, (), False)
    for index, name in enumerate(names):
        if index == buggy:
            function, fault, examples[name] = _build_buggy(name, kind, random)
        elif decoys and (index < cut) != (buggy < cut) and random.random() < 0.9:
            function, examples[name] = _build_decoy(name, random)
        else:
            function, examples[name] = _build_plain(name, random)
        functions.append(function)
    modules = {MODULES[0]: tuple(functions[:cut]), MODULES[1]: tuple(functions[cut:])}
    line, code, raises = fault
    return Problem(modules=modules, function=names[buggy], line=line, code=code, raises=raises, examples=examples)


def _build_buggy(name: str, kind: str, random: Random) -> tuple[Function, tuple[int, Code, bool], tuple[Example, ...]]:
    """A function with a bug, (line, right code, whether it raises), and examples: a failing one is shown and one is
    not."""
    while True:
        right = _draw_function(name, random)
        planted = plant_bug(right, kind, random)
        if planted is None:
            continue
        line, wrong = planted
        examples = _draw_examples(right, random, 2 * NUM_EXAMPLES)
        failing = [example for example in examples if _outcome(wrong, example[0]) != example[1]]
        if len(failing) < 2 or len(examples) < NUM_EXAMPLES:
            continue
        first, second = failing[:2]
        rest = [example for example in examples if example not in (first, second)]
        shown = [rest[0], first] if random.random() < 0.5 else [first, rest[0]]
        chosen = (*shown, second, *rest[1:])[:NUM_EXAMPLES]
        given = (_outcome(wrong, arguments) for arguments, want in chosen if _outcome(wrong, arguments) != want)
        raises = next(given) is None
        return wrong, (line, right.lines[line].code, raises), chosen


def _build_decoy(name: str, random: Random) -> tuple[Function, tuple[Example, ...]]:
    """A right function that looks wrong. A stale comment's reading fails one of its examples."""
    while True:
        function, examples = _build_plain(name, random)
        if random.random() < 0.3:
            return unusual_code(function, random), examples
        stale = stale_comment(function, random)
        if stale is None:
            continue
        index, decoy = stale
        reading = plant_reading(decoy, index)
        if any(_outcome(reading, arguments) != value for arguments, value in examples):
            return decoy, examples


def plant_reading(function: Function, index: int) -> Function:
    """The function with the line of that index written as its intent says."""
    line = function.lines[index]
    lines = (*function.lines[:index], replace(line, code=to_code(line.intent)), *function.lines[index + 1 :])
    return replace(function, lines=lines)


def _build_plain(name: str, random: Random) -> tuple[Function, tuple[Example, ...]]:
    while True:
        function = _draw_function(name, random)
        examples = _draw_examples(function, random, NUM_EXAMPLES)
        if len(examples) == NUM_EXAMPLES:
            return function, tuple(examples)


def _draw_examples(function: Function, random: Random, count: int) -> list[Example]:
    """Up to `count` different examples whose values are small; fewer where most arguments give none."""
    examples: dict[tuple[int, ...], int] = {}
    for _ in range(2 * count):
        arguments = tuple(random.randrange(10) for _ in function.parameters)
        value = _outcome(function, arguments)
        if value is not None and abs(value) <= LARGEST:
            examples[arguments] = value
        if len(examples) == count:
            break
    return list(examples.items())


def _outcome(function: Function, arguments: tuple[int, ...]) -> int | None:
    """What the function gives; None where it raises."""
    try:
        return compute(function, arguments)
    except ZeroDivisionError:
        return None


def _draw_function(name: str, random: Random) -> Function:
    """Two to five lines: assignments, perhaps an `if` with one line below it, and a return."""
    letters = random.sample(LETTERS, 5)
    defined, fresh = letters[:2], letters[2:]
    parameters = tuple(defined)
    codes: list[tuple[int, Code]] = []
    num_before, has_if, num_after = random.choice(
        ((1, False, 0), (2, False, 0), (0, True, 0), (1, True, 0), (0, True, 1), (1, True, 1))
    )
    for _ in range(num_before):
        codes.append((0, (fresh[0], "=", *_draw_term(defined, random))))
        defined.append(fresh.pop(0))
    if has_if:
        test = _draw_comparison(defined, random)
        if random.random() < 0.5:
            test = (*test, random.choice(tuple(BOOLEANS)), *_draw_comparison(defined, random))
        codes.append((0, ("if", *test, ":")))
        action = ("return",) if random.random() < 0.5 else (random.choice(defined), "=")
        codes.append((1, (*action, *_draw_term(defined, random))))
    for _ in range(num_after):
        codes.append((0, (fresh[0], "=", *_draw_term(defined, random))))
        defined.append(fresh.pop(0))
    codes.append((0, ("return", *_draw_term(defined, random))))
    lines = tuple(Line(depth=depth, code=code, intent=to_intent(code)) for depth, code in codes)
    return Function(name=name, parameters=parameters, lines=lines)


def _draw_term(defined: list[str], random: Random) -> Code:
    left = random.choice(defined[-2:])
    return left, random.choice(tuple(OPERATORS)), _draw_right(left, defined, random, 0.4)


def _draw_comparison(defined: list[str], random: Random) -> Code:
    left = random.choice(defined)
    return left, random.choice(tuple(COMPARISONS)), _draw_right(left, defined, random, 0.5)


def _draw_right(left: str, defined: list[str], random: Random, number: float) -> str:
    """A constant with that probability, else another variable."""
    if random.random() < number:
        return random.choice(NUMBERS)
    return random.choice([name for name in defined if name != left])
