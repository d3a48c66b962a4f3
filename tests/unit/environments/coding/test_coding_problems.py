"""Generated problems: what their examples say, what only the hidden ones say, and what no guess can know."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.environments.coding.functions import PICKS, Function, Kind, readings, space_of
from turnwise.environments.coding.policies import write_program
from turnwise.environments.coding.problems import build_problem

KINDS: tuple[Kind, ...] = get_args(Kind)
lists = st.lists(st.integers(-99, 99), min_size=2, max_size=9).map(tuple)


def run_program(function: Function, x: tuple[int, ...]) -> Any:
    """What the program of a function returns; it is of our own table."""
    home: dict[str, Any] = {}
    exec(write_program(function, "functional", "solve"), home)
    value = home["solve"](list(x))
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", KINDS)
@given(x=lists, data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_program_gives_what_its_function_computes(kind: Kind, x: tuple[int, ...], data: st.DataObject) -> None:
    function = data.draw(st.sampled_from(space_of(kind).functions))
    assert run_program(function, x) == function.compute(x)


@pytest.mark.parametrize("kind", KINDS)
def test_combinations_are_held_out_and_parts_are_not(kind: Kind) -> None:
    space = space_of(kind)
    counts = Counter(space.split.values())
    assert counts["heldout"] == sum(len(group) // 3 for group in space.groups)
    for place in range(len(space.functions[0].parts)):
        trained = {f.parts[place] for f in space.functions if space.split[f] == "train"}
        assert trained == {f.parts[place] for f in space.functions}
    if kind != "pipeline":
        assert trained == set(PICKS)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), length=st.integers(3, 4), split=st.sampled_from(["train", "heldout"]))
@settings(max_examples=15, deadline=None)
def test_what_examples_say(kind: Kind, seed: int, length: int, split: Split) -> None:
    problem = build_problem(kind, split, Random(seed), length=length, num_hidden=10)
    assert space_of(kind).split[problem.function] == split
    # The first visible example leaves several readings, all of them together one.
    first = readings(kind, problem.visible[:1])
    assert problem.function in first
    assert len(first) >= space_of(kind).num_readings
    assert readings(kind, problem.visible) == [problem.function]
    # The last visible list is longer, so that an index counted from the other end is told apart before submitting.
    assert [len(x) for x, _ in problem.visible] == [length] * (len(problem.visible) - 1) + [length + 1]
    # Hidden inputs: others than the visible ones, one with a number twice, of several lengths.
    hidden = [x for x, _ in problem.hidden]
    assert len(hidden) == 10
    assert not {x for x, _ in problem.visible} & set(hidden)
    assert len(set(hidden[0])) < len(hidden[0])
    assert len({len(x) for x in hidden}) > 1
    for function in first:
        agrees = all(function.compute(x) == value for x, value in problem.hidden)
        assert agrees == (function == problem.function)


@pytest.mark.parametrize(("kind", "ceiling"), [("pick2", 0.25), ("pick3", 0.125)])
def test_no_guess_from_the_statement_is_right_more_often_than_the_number_of_readings_says(
    kind: Kind, ceiling: float
) -> None:
    """A guess may know how often each function and each first example come, but not which combinations are held out.

    For every first example the readings are as likely as each other, so the best guess is right one time in that many.
    """
    space = space_of(kind)
    weights: dict[Any, Counter[Function]] = {}
    for group in space.groups:
        for function in group:
            examples = [(x, tuple(function.compute(x))) for x in _lists_of_three() if _is_open(function, x)]  # type: ignore[arg-type]
            for example in examples:
                weights.setdefault(example, Counter())[function] += 1 / (
                    len(space.groups) * len(group) * len(examples)
                )  # type: ignore[assignment]
    total = sum(sum(each.values()) for each in weights.values())
    assert total == pytest.approx(1.0)
    assert sum(max(each.values()) for each in weights.values()) == pytest.approx(ceiling, abs=0.02)


def _lists_of_three() -> list[tuple[int, ...]]:
    return [(a, b, c) for a in range(4) for b in range(4) for c in range(4) if len({a, b, c}) == 3]


def _is_open(function: Function, x: tuple[int, ...]) -> bool:
    space = space_of(function.kind)
    return len(readings(function.kind, [(x, function.compute(x))])) >= space.num_readings


def test_a_length_for_which_no_example_is_open_is_named() -> None:
    with pytest.raises(ConfigError, match="environment.args.length"):
        build_problem("pick3", "train", Random(0), length=3, num_hidden=0)
