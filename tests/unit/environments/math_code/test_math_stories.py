"""Stories: the expression or program of each gives its answer, and the slip runs."""

from __future__ import annotations

import ast
import contextlib
import io
import operator
import re
from collections.abc import Callable
from random import Random

import pytest

from turnwise.core.protocols import Split
from turnwise.environments.math_code.family import MathCode
from turnwise.environments.math_code.policies import plan_of
from turnwise.environments.math_code.problems import split_of
from turnwise.environments.math_code.stories import STORY_KINDS, draw_story

OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
}


def compute(node: ast.expr) -> int:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return node.value
    assert isinstance(node, ast.BinOp)
    return OPERATIONS[type(node.op)](compute(node.left), compute(node.right))


def run(tool: str, text: str) -> int:
    if tool == "calculator":
        return compute(ast.parse(text, mode="eval").body)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(text, {})
    return int(printed.getvalue())


@pytest.mark.parametrize("kind", STORY_KINDS)
def test_the_solution_gives_the_answer_and_the_slip_mostly_does_not(kind: str) -> None:
    stories = [draw_story(kind, "train", Random(seed)) for seed in range(300)]
    assert all(run(story.tool, story.solution) == story.answer >= 0 for story in stories)
    assert sum(run(story.tool, story.slip) == story.answer for story in stories) < 0.1 * len(stories)


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def test_the_numbers_of_a_solution_are_told_in_order_and_some_that_are_told_do_not_matter() -> None:
    stories = [draw_story("steps4", "train", Random(seed)) for seed in range(200)]
    for story in stories:
        told = iter(numbers(story.question))
        assert all(number in told for number in numbers(story.solution))  # a subsequence, as the iterator moves on
    spare = [len(numbers(story.question)) - len(numbers(story.solution)) for story in stories]
    assert set(spare) == {0, 1, 2}


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_splits_share_no_story(split: Split) -> None:
    family = MathCode(mode="stories", calculator=True)
    questions = [family.task(split, index).payload["question"] for index in range(100)]
    assert {split_of(question) for question in questions} == {split}


@pytest.mark.parametrize("calculator", [True, False])
def test_without_a_calculator_expressions_become_programs(calculator: bool) -> None:
    family = MathCode(mode="stories", calculator=calculator)
    tools = set()
    for index in range(100):
        task = family.task("train", index)
        plan = plan_of(task)
        assert plan is not None
        tools.add(plan.tool)
        assert run(plan.tool, plan.solution) == int(task.payload["answers"][0])
    assert tools == ({"calculator", "python"} if calculator else {"python"})
