"""The family of inverted questions: oracle, controls, budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.core.types import Scored
from turnwise.environments.episodes import play_episode
from turnwise_synthesis import RECIPES
from turnwise_synthesis.browsecomp.environment import NO_SEARCHES
from turnwise_synthesis.browsecomp.family import BrowseComp

SMALL = {"num_entities": 40, "tasks_per_world": 4}


def success(name: str, count: int = 24, **arguments) -> float:
    """Share of a scripted policy's successes."""
    family = BrowseComp(**SMALL, **arguments)
    total = 0.0
    for index in range(count):
        task = family.task("heldout", index)
        played = asyncio.run(play_episode(family, task, family.policy(name), seed=index, max_turns=40))
        assert isinstance(played.reward, Scored)
        total += played.reward.total
    return total / count


def test_the_oracle_finds_everything_and_a_first_guess_does_not() -> None:
    assert success("oracle") == 1.0
    assert success("naive") <= 0.2
    assert success("random") <= 0.2


def test_controls_fail() -> None:
    assert success("oracle", 12, search="off") == 0.0
    assert success("oracle", 12, search="shuffled") <= 0.2


def test_success_grows_with_the_budget_and_the_questions_stay_the_same() -> None:
    budgets = [success("oracle", max_searches=count) for count in (0, 2, 4, 12)]
    assert budgets == sorted(budgets)
    assert budgets[0] == 0.0
    assert budgets[-1] == 1.0
    few, many = (BrowseComp(**SMALL, max_searches=count).task("heldout", 5) for count in (1, 12))
    assert few == many


def test_searches_beyond_the_budget_say_so() -> None:
    family = BrowseComp(**SMALL, max_searches=1)
    task = family.task("heldout", 0)
    played = asyncio.run(play_episode(family, task, family.policy("oracle"), seed=0, max_turns=40))
    shown = [message.text for result in played.results for message in result.observations]
    assert NO_SEARCHES not in shown[:1]
    assert set(shown[1:]) == {NO_SEARCHES}


def test_splits_share_no_name_and_tasks_repeat() -> None:
    answers: Mapping[str, set[str]] = {
        split: {BrowseComp(**SMALL).task(split, index).payload["answers"][0] for index in range(8)}  # type: ignore[arg-type]
        for split in ("train", "heldout")
    }
    assert not answers["train"] & answers["heldout"]
    assert BrowseComp(**SMALL).task("train", 7) == BrowseComp(**SMALL).task("train", 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"answers": []}, "answers=[] leaves nothing to ask for"),
        ({"answers": ["river"]}, "answers=['river'] has 'river'; use person, place"),
        ({"obfuscations": ["blur"]}, "obfuscations=['blur'] has 'blur'; use type, initial"),
        ({"kinds": {"deep": 1.0}}, "kinds.deep=1.0: unknown kind; use near, far"),
        ({"min_candidates": 1}, "min_candidates=1"),
    ],
)
def test_bad_arguments_are_named(arguments, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrowseComp(**arguments)
    assert message in str(error.value)


def test_a_world_without_such_questions_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"kinds has 'far', but no such question was found in 50 worlds; raise"):
        BrowseComp(num_entities=12, min_candidates=50).task("train", 0)


def test_sample_texts_show_a_search_and_an_answer() -> None:
    texts = list(BrowseComp(**SMALL, wording="compact").sample_texts(0))
    assert texts[1].startswith("<search> ")
    assert texts[-1].startswith("<answer> ")


def test_the_recipe_builds_its_family() -> None:
    [path] = sorted(Path(RECIPES / "browsecomp").glob("*.toml"))
    arguments = load_config([path], []).environment.args
    task = BrowseComp(**arguments).task("train", 0)
    assert " ; " in task.prompt[0].text
