"""Generated problems: a program with bugs, decoys in the other module, and examples of every function's results.

Operators, constants and names are drawn at random, so that code alone does not show which of its readings is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from turnwise.core.protocols import Split
from turnwise_worlds.repair.bugs import NUMBERS, plant_bug, stale_comment, unusual_code
from turnwise_worlds.repair.programs import (
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
"""The names of functions, each a word that can be one token of a tokenizer."""
BUGGY_NAMES: dict[Split, tuple[str, ...]] = {"train": NAMES[16:], "heldout": NAMES[:16]}
"""Names for functions with a bug. Other functions may have any name, so held-out names are known from training, but
never for a function to be repaired."""
LETTERS = "abcdeknpxyz"
"""The names of variables."""
MODULES = ("m1", "m2")
LARGEST = 99
"""Largest value that a function may return."""
SHOWN_EXAMPLES = 2
"""Examples of a function in its test; the others are used only for grading."""
NUM_EXAMPLES = 6
CALL_SHARE = 0.7
"""Probability that a function calls a later one of its module; the last can call none."""

Example = tuple[tuple[int, ...], int]
"""The arguments and the function's result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A line of a program that differs from its intent and fails an example."""

    function: str
    """The name of its function."""
    line: int
    """The index of the line."""
    code: Code
    """The right code of the line."""
    raises: bool
    """Whether, without other bugs, the first failing example of its function raises instead of returning a wrong
    value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A program with bugs."""

    modules: Modules
    """The program as the agent gets it."""
    bugs: tuple[Bug, ...]
    """Bugs in the order of the program, each in a different function of one module."""
    examples: dict[str, tuple[Example, ...]]
    """`NUM_EXAMPLES` results of every function in the program without bugs; the first `SHOWN_EXAMPLES` are in its
    test."""


def build_problem(
    kind: str,
    split: Split,
    random: Random,
    *,
    num_functions: tuple[int, int],
    decoys: bool,
    num_bugs: int = 1,
    calls: bool = False,
) -> Problem:
    """Build a problem with bugs of one kind; `num_functions` are the smallest and the largest number of functions.

    With `calls` functions call later ones of their module, so that callers are tested before their callees, and one of
    the bugs is in a callee, if there is any. Each bug fails a shown example of its own function even if that function's
    callee is right; so the program fails a test until its last bug is repaired.
    """
    names = random.sample(NAMES, random.randint(*num_functions))
    cut = random.randint(2, len(names) - 2)
    callees = _draw_calls(len(names), cut, random) if calls else {}
    called = sorted(set(callees.values()))
    buggy = [random.choice(called) if called else random.randrange(len(names))]
    neighbours = range(cut) if buggy[0] < cut else range(cut, len(names))
    buggy += random.sample([index for index in neighbours if index != buggy[0]], num_bugs - 1)
    for index in buggy:
        names[index] = random.choice([name for name in BUGGY_NAMES[split] if name not in names])
    shown: dict[int, Function] = {}
    right: dict[int, Function] = {}
    examples: dict[str, tuple[Example, ...]] = {}
    bugs: dict[int, Bug] = {}
    for index in sorted(range(len(names)), reverse=calls):
        name, callee = names[index], right[callees[index]] if index in callees else None
        if index in buggy:
            right[index], shown[index], bugs[index], examples[name] = _build_buggy(name, callee, kind, random)
            continue
        looks_wrong = decoys and index not in neighbours and random.random() < 0.9
        build = _build_decoy if looks_wrong else _build_plain
        right[index], examples[name] = build(name, callee, random)
        shown[index] = right[index]
    functions = [shown[index] for index in range(len(names))]
    return Problem(
        modules={MODULES[0]: tuple(functions[:cut]), MODULES[1]: tuple(functions[cut:])},
        bugs=tuple(bugs[index] for index in sorted(bugs)),
        examples={name: examples[name] for name in names},
    )


def _draw_calls(size: int, cut: int, random: Random) -> dict[int, int]:
    """For each function that calls one, return its callee: a later one of its module, which calls none."""
    calls: dict[int, int] = {}
    for start, end in ((0, cut), (cut, size)):
        uncalling = [end - 1]
        for index in reversed(range(start, end - 1)):
            if random.random() < CALL_SHARE:
                calls[index] = random.choice(uncalling)
            else:
                uncalling.append(index)
    return calls


def _build_buggy(
    name: str, callee: Function | None, kind: str, random: Random
) -> tuple[Function, Function, Bug, tuple[Example, ...]]:
    """Return a function without and with a bug, the bug, and examples: a failing one is shown and another is not."""
    while True:
        right = _draw_function(name, callee, random)
        planted = plant_bug(right, kind, random)
        if planted is None:
            continue
        line, wrong = planted
        examples = _draw_examples(right, callee, random, 2 * NUM_EXAMPLES)
        failing = [example for example in examples if _outcome(wrong, example[0], callee) != example[1]]
        if len(failing) < 2 or len(examples) < NUM_EXAMPLES:
            continue
        first, second = failing[:2]
        rest = [example for example in examples if example not in (first, second)]
        shown = [rest[0], first] if random.random() < 0.5 else [first, rest[0]]
        chosen = (*shown, second, *rest[1:])[:NUM_EXAMPLES]
        given = [_outcome(wrong, arguments, callee) for arguments, want in chosen]
        raises = next(value for value, (_, want) in zip(given, chosen, strict=True) if value != want) is None
        return right, wrong, Bug(function=name, line=line, code=right.lines[line].code, raises=raises), chosen


def _build_decoy(name: str, callee: Function | None, random: Random) -> tuple[Function, tuple[Example, ...]]:
    """Return a right function that looks wrong. A stale comment's reading fails one of its examples."""
    while True:
        function, examples = _build_plain(name, callee, random)
        if random.random() < 0.3:
            return unusual_code(function, random), examples
        stale = stale_comment(function, random)
        if stale is None:
            continue
        index, decoy = stale
        reading = plant_reading(decoy, index)
        if any(_outcome(reading, arguments, callee) != value for arguments, value in examples):
            return decoy, examples


def plant_reading(function: Function, index: int) -> Function:
    """Return the function with the line at this index written according to its intent."""
    line = function.lines[index]
    lines = (*function.lines[:index], replace(line, code=to_code(line.intent)), *function.lines[index + 1 :])
    return replace(function, lines=lines)


def _build_plain(name: str, callee: Function | None, random: Random) -> tuple[Function, tuple[Example, ...]]:
    while True:
        function = _draw_function(name, callee, random)
        examples = _draw_examples(function, callee, random, NUM_EXAMPLES)
        if len(examples) == NUM_EXAMPLES:
            return function, tuple(examples)


def _draw_examples(function: Function, callee: Function | None, random: Random, count: int) -> list[Example]:
    """Draw up to `count` different examples with small values; fewer if most arguments have none."""
    examples: dict[tuple[int, ...], int] = {}
    for _ in range(2 * count):
        arguments = tuple(random.randrange(10) for _ in function.parameters)
        value = _outcome(function, arguments, callee)
        if value is not None and abs(value) <= LARGEST:
            examples[arguments] = value
        if len(examples) == count:
            break
    return list(examples.items())


def _outcome(function: Function, arguments: tuple[int, ...], callee: Function | None) -> int | None:
    """Return the function's result; None if it raises."""
    try:
        return compute(function, arguments, {callee.name: callee} if callee else {})
    except ZeroDivisionError:
        return None


def _draw_function(name: str, callee: Function | None, random: Random) -> Function:
    """Draw a function of two to five lines: assignments, perhaps an `if` with one line below it, and a return; one
    calls `callee`."""
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
    if callee is not None:
        at = random.choice([at for at, (_, code) in enumerate(codes) if code[0] != "if"])
        depth, (*head, left, _, right) = codes[at]
        codes[at] = depth, (*head, callee.name, "(", left, ",", right, ")")
    lines = tuple(Line(depth=depth, code=code, intent=to_intent(code)) for depth, code in codes)
    return Function(name=name, parameters=parameters, lines=lines)


def _draw_term(defined: list[str], random: Random) -> Code:
    left = random.choice(defined[-2:])
    return left, random.choice(tuple(OPERATORS)), _draw_right(left, defined, random, 0.4)


def _draw_comparison(defined: list[str], random: Random) -> Code:
    left = random.choice(defined)
    return left, random.choice(tuple(COMPARISONS)), _draw_right(left, defined, random, 0.5)


def _draw_right(left: str, defined: list[str], random: Random, number: float) -> str:
    """Draw a constant with probability `number`, otherwise another variable."""
    if random.random() < number:
        return random.choice(NUMBERS)
    return random.choice([name for name in defined if name != left])
