"""Pages that are drawn without a browser."""

from __future__ import annotations

import asyncio
import tomllib
from random import Random

import pytest

from turnwise.core.errors import ConfigError, ToolFailure
from turnwise.core.packages import find_version
from turnwise_worlds import RECIPES
from turnwise_worlds.miniwob.drawn import DRAWN, DrawnPage
from turnwise_worlds.miniwob.family import Miniwob
from turnwise_worlds.miniwob.goals import Step, find_words, plan
from turnwise_worlds.miniwob.listing import View
from turnwise_worlds.miniwob.tasks import GROUPS

if not find_version("miniwob"):
    pytest.skip("the words are those of the package miniwob, which is missing", allow_module_level=True)
pytestmark = pytest.mark.system


def right_step(task: str, view: View) -> Step:
    """What the oracle does."""
    step = plan(task, view.elements, find_words(task, view.goal))
    assert step is not None
    return step


@pytest.mark.parametrize("task", sorted(DRAWN))
def test_the_right_steps_are_worth_one(task: str) -> None:
    for seed in range(50):
        page = DrawnPage(task, Random(seed))
        while not page.view.is_done:
            asyncio.run(page.act(right_step(task, page.view)))
        assert page.view.reward == 1.0


@pytest.mark.parametrize("task", sorted({"click-dialog-2", "click-tab", "focus-text-2", *GROUPS["names"]}))
def test_another_element_than_the_right_one_is_worth_minus_one_or_nothing(task: str) -> None:
    rewards = set()
    for seed in range(50):
        page = DrawnPage(task, Random(seed))
        right = right_step(task, page.view).number
        others = [
            number
            for number, each in enumerate(page.view.elements, 1)
            if number != right and (each.name != page.view.elements[right - 1].name or each.kind == "field")
        ]
        if others:
            view = asyncio.run(page.act(Step(verb="click", number=others[0])))
            rewards.add(view.reward if view.is_done else None)
    assert rewards - {None} == {-1.0}


def test_a_text_that_was_not_asked_for_is_wrong_once_it_is_sent() -> None:
    page = DrawnPage("enter-text", Random(1))
    view = asyncio.run(page.act(Step(verb="type", number=1, text="other")))
    assert (view.elements[0].value, view.is_done) == ("other", False)
    assert asyncio.run(page.act(Step(verb="click", number=2))).reward == -1.0
    with pytest.raises(ToolFailure, match="2 is no field"):
        asyncio.run(DrawnPage("enter-text", Random(1)).act(Step(verb="type", number=2, text="x")))


def test_what_cannot_be_drawn_is_said() -> None:
    assert {*GROUPS["tiny"], *GROUPS["names"]} == DRAWN
    with pytest.raises(ConfigError, match=r"no page of click-test can be drawn; set tasks to \['tiny'\]"):
        Miniwob(tasks=["click-test", "click-tab"], drawn_until=1)
    with pytest.raises(ConfigError, match="drawn pages have no pictures"):
        Miniwob(tasks=["tiny"], drawn_until=1, surface="both")


def test_training_tasks_after_the_drawn_ones_and_all_that_are_held_out_are_real() -> None:
    family = Miniwob(tasks=["tiny"], drawn_until=3)
    assert ["drawn" in family.task("train", index).payload for index in range(5)] == [True] * 3 + [False] * 2
    assert not any("drawn" in family.task("heldout", index).payload for index in range(5))
    assert not any("drawn" in Miniwob(tasks=["tiny"]).task("train", index).payload for index in range(5))


def test_the_recipe_draws_its_demonstrations_and_nothing_else() -> None:
    # RL takes the training tasks after the demonstrations.
    recipe = tomllib.loads((RECIPES / "web" / "miniwob.toml").read_text(encoding="utf-8"))
    assert recipe["environment"]["args"]["drawn_until"] == recipe["sft"]["num_demonstrations"]
