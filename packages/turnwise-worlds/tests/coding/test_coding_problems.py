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
from turnwise_worlds.coding.family import Coding
from turnwise_worlds.coding.functions import Function, Kind, readings, space_of
from turnwise_worlds.coding.policies import write_program
from turnwise_worlds.coding.problems import build_problem

KINDS: tuple[Kind, ...] = get_args(Kind)


def run_program(function: Function, x: tuple[int, ...]) -> Any:
    """What the program of a function returns; it is of our own table."""
    home: dict[str, Any] = {}
    exec(write_program(function, "functional", "solve"), home)
    value = home["solve"](*x) if function.kind == "arithmetic" else home["solve"](list(x))
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_program_gives_what_its_function_computes(kind: Kind, data: st.DataObject) -> None:
    function = data.draw(st.sampled_from(space_of(kind).functions))
    numbers = st.integers(-99, 99)
    x = data.draw(
        st.tuples(numbers, st.integers(1, 9)) if kind == "arithmetic" else st.lists(numbers, max_size=9).map(tuple)
    )
    assert run_program(function, x) == function.compute(x)


@pytest.mark.parametrize("kind", KINDS)
def test_combinations_are_held_out_and_parts_are_not(kind: Kind) -> None:
    space = space_of(kind)
    counts = Counter(space.split.values())
    assert 0.3 <= counts["heldout"] / len(space.functions) <= 0.36
    assert all({space.split[f] for f in group} == {"train", "heldout"} for group in space.groups)
    for place in range(len(space.functions[0].parts)):
        trained = {f.parts[place] for f in space.functions if space.split[f] == "train"}
        assert trained == {f.parts[place] for f in space.functions}


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), split=st.sampled_from(["train", "heldout"]))
@settings(max_examples=25, deadline=None)
def test_what_examples_say(kind: Kind, seed: int, split: Split) -> None:
    problem = build_problem(kind, split, Random(seed), num_hidden=10)
    assert space_of(kind).split[problem.function] == split
    assert all(value == problem.function.compute(x) for x, value in (*problem.visible, *problem.hidden))
    # The first visible example leaves several readings, all of them together one.
    first = readings(kind, problem.visible[:1])
    assert problem.function in first
    assert len(first) >= (8 if kind == "arithmetic" else 2)
    assert readings(kind, problem.visible) == [problem.function]
    # The last one is of another sort: an absolute difference, or an index, is told apart before submitting.
    (*_, (x, _)) = problem.visible
    assert x[0] < x[1] if kind == "arithmetic" else len(x) == 5
    # Hidden: other inputs, with edges, that leave no other reading of the first example.
    hidden = [x for x, _ in problem.hidden]
    assert len(hidden) == 10
    assert not {x for x, _ in problem.visible} & set(hidden)
    if kind == "arithmetic":
        assert hidden[0][0] < 0 == hidden[1][0] < 10 <= hidden[2][0]
        assert all(y > 0 for _, y in hidden)
    else:
        assert hidden[0][0] == hidden[0][1]
        assert {len(x) for x in hidden} >= {2, 4, 5}
    for function in first:
        agrees = all(function.compute(x) == value for x, value in problem.hidden)
        assert agrees == (function == problem.function)


def test_a_guess_from_the_statement_of_arithmetic_is_right_one_time_in_fourteen() -> None:
    """All statements are about 2 and 2, so that a guess can only know how often a function comes with such results.

    Every group of results comes equally often, and so does each of its functions but for the split: the best guess is
    right one time in 3 or 2 for each of the three results, ((1/3 + 1/2) / 2) ** 3 = 0.072 in all.
    """
    space = space_of("arithmetic")
    assert sum(1 / len(group) for group in space.groups) / 8 == pytest.approx((5 / 12) ** 3)
    for group in space.groups:
        assert readings("arithmetic", [((2, 2), group[0].compute((2, 2)))]) == [*group]
    family = Coding(prompt="short", kinds={"arithmetic": 1.0})
    shown = Counter(family.task("heldout", index).prompt[0].text for index in range(400))
    zero_or_four = (0, 4)
    assert set(shown) == {
        f"solve 2 2 gives {a} {b} {c}\n" for a in zero_or_four for b in zero_or_four for c in zero_or_four
    }
    assert [count / 400 for count in shown.values()] == pytest.approx([1 / 8] * 8, abs=0.06)


def test_every_pair_of_operators_is_trained_in_every_two_places() -> None:
    split = space_of("arithmetic").split
    trained = [function.parts for function, each in split.items() if each == "train"]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len({(parts[one], parts[other]) for parts in trained}) == 25


def test_too_few_hidden_tests_to_refute_anything_are_named() -> None:
    with pytest.raises(ConfigError, match=r"environment\.args\.hidden_tests"):
        build_problem("arithmetic", "train", Random(0), num_hidden=0)


@pytest.mark.parametrize("stdin", [0.0, 1.0])
def test_a_task_holds_what_its_problem_says(stdin: float) -> None:
    task = Coding(prompt="short", kinds={"arithmetic": 1.0}, stdin=stdin, hidden_tests=15).task("train", 3)
    payload = task.payload
    assert len(payload["hidden"]) == 15
    assert payload["num_shown"] == 1
    (x, value), *_ = payload["examples"]
    given, wanted = payload["visible"][0]
    if stdin:
        assert (given, wanted) == (f"{x[0]} {x[1]}\n", " ".join(map(str, value)))
        assert task.prompt[0].text == f"stdin 2 2 gives {wanted}\n"
    else:
        assert (given, wanted) == (x, value)
        assert task.prompt[0].text == f"solve 2 2 gives {' '.join(map(str, value))}\n"
    assert payload["other"] != payload["visible"]
