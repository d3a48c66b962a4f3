"""Programs and problems: words and code, what functions compute, bugs, decoys, splits."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise_worlds.repair.bugs import KINDS, TRAINED_KINDS, plant_bug, stale_comment, unusual_code
from turnwise_worlds.repair.environment import read_examples, read_modules
from turnwise_worlds.repair.family import Repair
from turnwise_worlds.repair.problems import (
    BUGGY_NAMES,
    NUM_EXAMPLES,
    SHOWN_EXAMPLES,
    Problem,
    build_problem,
    plant_reading,
)
from turnwise_worlds.repair.programs import (
    Function,
    Line,
    compute,
    show_line,
    to_code,
    to_intent,
    to_source,
)

EXAMPLE = Function(
    name="f47",
    parameters=("a", "b"),
    lines=(
        Line(depth=0, code=("c", "=", "a", "+", "2"), intent="c is a plus 2"),
        Line(
            depth=0,
            code=("if", "c", ">", "5", "or", "a", "<=", "b", ":"),
            intent="if c above 5 otherwise a within b",
        ),
        Line(depth=1, code=("c", "=", "c", "*", "b"), intent="c is c times b"),
        Line(depth=0, code=("return", "c", "-", "1"), intent="return c over 1"),
    ),
)


def problems(count: int, kind: str | None = None, split: Split = "train") -> list[Problem]:
    return [
        build_problem(kind or KINDS[index % 6], split, Random(index), num_functions=(4, 6), decoys=True)
        for index in range(count)
    ]


def give(function: Function, arguments: tuple[int, ...]) -> int | None:
    try:
        return compute(function, arguments)
    except ZeroDivisionError:
        return None


def test_a_line_shows_what_it_is_meant_to_do_and_its_code() -> None:
    assert [show_line(line) for line in EXAMPLE.lines] == [
        "c is a plus 2 | c = a + 2",
        "if c above 5 otherwise a within b | if c > 5 or a <= b :",
        "c is c times b | . c = c * b",
        "return c over 1 | return c - 1",
    ]


def test_functions_compute_what_they_say() -> None:
    # a=4, b=3: c = 6 > 5, so c = 6 * 3 = 18; 18 - 1 = 17.  a=3, b=2: c = 5, not above 5, and 3 > 2; 5 - 1 = 4.
    assert (compute(EXAMPLE, (4, 3)), compute(EXAMPLE, (3, 2))) == (17, 4)


def test_the_interpreter_agrees_with_python_on_generated_programs() -> None:
    raised = 0
    for problem in problems(60):
        for functions in problem.modules.values():
            names: dict[str, object] = {}
            exec(to_source(functions), names)
            for function in functions:
                for arguments, _ in problem.examples[function.name]:
                    try:
                        expected = names[function.name](*arguments)  # type: ignore[operator]
                    except ZeroDivisionError:
                        expected, raised = None, raised + 1
                    assert give(function, arguments) == expected
    assert raised  # some bugs raise


def test_code_and_intent_are_each_other_word_by_word() -> None:
    assert to_intent(("if", "a", ">=", "3", "and", "b", "<", "c", ":")) == "if a reaches 3 also b below c"
    assert to_code("if a reaches 3 also b below c") == ("if", "a", ">=", "3", "and", "b", "<", "c", ":")
    for problem in problems(40):
        for functions in problem.modules.values():
            for function in functions:
                for line in function.lines:
                    assert to_intent(to_code(line.intent)) == line.intent


@pytest.mark.parametrize("kind", KINDS)
def test_a_bug_is_one_line_that_its_intent_repairs_and_that_a_shown_and_a_hidden_example_see(kind: str) -> None:
    for problem in problems(30, kind):
        functions = {function.name: function for each in problem.modules.values() for function in each}
        (bug,) = problem.bugs
        buggy = functions[bug.function]
        odd = [index for index, line in enumerate(buggy.lines) if line.code != to_code(line.intent)]
        assert odd == [bug.line]
        assert to_code(buggy.lines[bug.line].intent) == bug.code
        wrong = buggy.lines[bug.line].code
        differing = sum(a != b for a, b in zip(bug.code, wrong, strict=True))
        assert differing == (2 if kind == "swap" else 1)
        assert len(problem.examples[bug.function]) == NUM_EXAMPLES
        failing = [give(buggy, arguments) != want for arguments, want in problem.examples[bug.function]]
        assert any(failing[:SHOWN_EXAMPLES])
        assert any(failing[SHOWN_EXAMPLES:])
        examples = problem.examples[bug.function]
        first = next(arguments for arguments, want in examples if give(buggy, arguments) != want)
        assert bug.raises == (give(buggy, first) is None)
        repaired = plant_reading(buggy, bug.line)
        for name, function in {**functions, bug.function: repaired}.items():
            assert [give(function, arguments) for arguments, _ in problem.examples[name]] == [
                want for _, want in problem.examples[name]
            ]


def test_decoys_look_wrong_pass_and_their_reading_fails() -> None:
    stale = unusual = 0
    for problem in problems(60):
        for functions in problem.modules.values():
            for function in functions:
                if function.name == problem.bugs[0].function:
                    assert all("(" not in line.code for line in function.lines)
                    continue
                for index, line in enumerate(function.lines):
                    if line.code == to_code(line.intent):
                        continue
                    assert problem.bugs[0].function not in {
                        each.name for each in functions
                    }  # in the other module alone
                    if "(" in line.code:
                        unusual += 1
                        continue
                    stale += 1
                    reading = plant_reading(function, index)
                    assert any(give(reading, a) != want for a, want in problem.examples[function.name])
    assert stale > 20
    assert unusual > 5


def test_without_decoys_only_the_bug_looks_wrong() -> None:
    for index in range(30):
        problem = build_problem("op", "train", Random(index), num_functions=(4, 6), decoys=False)
        lines = [line for each in problem.modules.values() for function in each for line in function.lines]
        assert sum(line.code != to_code(line.intent) for line in lines) == 1


def test_of_two_readings_the_right_one_is_as_often_either() -> None:
    """(right, wrong) and (wrong, right) are equally likely for additions and subtractions: code alone does not tell."""
    counts: Counter[tuple[str, str]] = Counter()
    for problem in problems(1200, "op"):
        (bug,) = problem.bugs
        buggy = next(f for each in problem.modules.values() for f in each if f.name == bug.function)
        wrong = buggy.lines[bug.line].code
        counts.update((a, b) for a, b in zip(bug.code, wrong, strict=True) if a != b)
    plus_for_minus, minus_for_plus = counts["+", "-"], counts["-", "+"]
    # About 100 each; four standard deviations of their difference are 4 * sqrt(200) = 57.
    assert plus_for_minus + minus_for_plus > 120
    assert abs(plus_for_minus - minus_for_plus) < 57


def test_planting_and_decoys_leave_the_rest_alone() -> None:
    planted = plant_bug(EXAMPLE, "bool", Random(0))
    assert planted is not None
    index, buggy = planted
    assert index == 1
    assert buggy.lines[1].code == ("if", "c", ">", "5", "and", "a", "<=", "b", ":")
    assert buggy.lines[1].intent == EXAMPLE.lines[1].intent
    assert plant_bug(EXAMPLE.__class__(name="g", parameters=("a",), lines=EXAMPLE.lines[:1]), "bool", Random(0)) is None
    stale = stale_comment(EXAMPLE, Random(0))
    assert stale is not None
    assert [line.code for line in stale[1].lines] == [line.code for line in EXAMPLE.lines]
    assert stale[1].lines[stale[0]].intent != EXAMPLE.lines[stale[0]].intent
    odd = unusual_code(EXAMPLE, Random(1))
    assert sum(line.code.count("(") for line in odd.lines) == 1
    names: dict[str, object] = {}
    exec(to_source([odd]), names)
    assert names["f47"](4, 3) == 17  # type: ignore[operator]


# ------------------------------------------------------------------------------------------------ the family's tasks


def test_tasks_are_pure_functions_of_split_and_index_and_splits_share_no_buggy_name() -> None:
    first, second = Repair(), Repair()
    assert [first.task("train", index).id for index in range(50)] == [
        second.task("train", index).id for index in reversed(range(50))
    ][::-1]
    assert Repair(seed=1).task("train", 0).id != first.task("train", 0).id
    assert json.dumps(dict(first.task("train", 0).payload))
    buggy = {
        split: {first.task(split, index).payload["bug"]["function"] for index in range(150)}
        for split in ("train", "heldout")
    }
    assert buggy["train"] <= set(BUGGY_NAMES["train"])
    assert buggy["heldout"] <= set(BUGGY_NAMES["heldout"])
    assert not set(BUGGY_NAMES["train"]) & set(BUGGY_NAMES["heldout"])
    # A held-out name is known from training, as that of a function without a bug.
    used = {name for index in range(150) for name in first.task("train", index).payload["examples"]}
    assert set(BUGGY_NAMES["heldout"]) <= used


def test_two_kinds_are_held_out() -> None:
    family = Repair()
    kinds = {
        split: {family.task(split, index).payload["kind"] for index in range(120)} for split in ("train", "heldout")
    }
    assert kinds == {"train": set(TRAINED_KINDS), "heldout": set(KINDS)}


def test_a_payload_holds_the_program_and_its_examples() -> None:
    family = Repair(min_functions=5, max_functions=5)
    task = family.task("heldout", 3)
    modules, examples = read_modules(task), read_examples(task)
    assert [function.name for each in modules.values() for function in each] == list(examples)
    assert len(examples) == 5
    assert min(len(each) for each in modules.values()) >= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": {"typo": 1.0}}, "kinds.typo=1.0"),
        ({"heldout_kinds": {"op": 0.0}}, "heldout_kinds=.*no positive weight"),
        ({"min_functions": 6, "max_functions": 4}, "min_functions=6 is above max_functions=4"),
        ({"tests": "none"}, "tests='none'"),
        ({"wall_s": 40.0}, "wall_s=40.0 leaves no time"),
        ({"naive_eye": 2}, "naive_eye=2"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Repair(**arguments)
