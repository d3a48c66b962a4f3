"""reasoning-gym's data sets through the adapter."""

import asyncio

import pytest
from played_games import act, check_family, need, success

from turnwise.core.errors import ConfigError
from turnwise.core.types import Scored
from turnwise.environments.registry import load_family
from turnwise.rewards.math_verifier import to_plain
from turnwise.rewards.math_worker import score
from turnwise_adapters.reasoning_gym import EVALUATING, MISTAKEN, list_datasets, open_dataset, scorer_of

need("reasoning_gym", "a")
ARGUMENTS = {"datasets": {"coin_flip": 1.0, "family_relationships": 2.0}}


def test_questions_of_several_data_sets_are_asked_and_judged() -> None:
    family = check_family("reasoning_gym", ARGUMENTS)
    assert {family.task("train", at).payload["kind"] for at in range(20)} == set(ARGUMENTS["datasets"])
    assert success(family, "oracle", 10) == 1.0
    assert success(family, "random", 10) <= 0.5


def test_no_question_is_in_both_splits() -> None:
    family = load_family("reasoning_gym", {"datasets": {"coin_flip": 1.0}})
    asked = [{family.task(split, at).prompt[0].text for at in range(40)} for split in ("train", "heldout")]  # type: ignore[arg-type]
    assert not asked[0] & asked[1]


def test_an_answer_is_never_evaluated() -> None:
    # spiral_matrix's own scorer would call eval on an answer with a bracket; only its own answer is right here.
    family = check_family("reasoning_gym", {"datasets": {"spiral_matrix": 1.0}}, count=2)
    assert scorer_of("spiral_matrix", {}) == "text"
    _, reward = asyncio.run(act(family, ["[__import__('os').abort()]"]))
    assert reward.total == 0.0
    assert success(family, "oracle", 3) == 1.0


def test_the_list_of_scorers_that_evaluate_names_data_sets_that_exist() -> None:
    assert set(list_datasets()) > EVALUATING


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("complex_arithmetic", "nan"), ("coin_flip", "0"), ("game_of_life_halting", "I do not know")],
)
def test_a_scorer_that_gives_full_marks_to_a_wrong_answer_is_not_asked(name: str, wrong: str) -> None:
    """min(1.0, nan) is 1.0; one equal first digit was all of "0"; bool("False") is true."""
    family = check_family("reasoning_gym", {"datasets": {name: 1.0}}, count=2)
    entries = [open_dataset(name, "{}")[number] for number in range(5)]
    assert any(score(wrong, name, repr(to_plain(entry))) for entry in entries)  # a mended scorer is noticed
    _, reward = asyncio.run(act(family, [wrong]))
    assert reward.total == 0.0
    assert success(family, "oracle", 3) == 1.0
    assert scorer_of(name, {}) == "text"
    assert set(list_datasets()) > MISTAKEN


@pytest.mark.parametrize(
    ("name", "answer"), [("boxnet", "0"), ("prime_factorization", "many"), ("calendar_arithmetic", "9" * 400)]
)
def test_an_answer_that_breaks_its_scorer_is_wrong_and_no_reason_to_repeat_the_episode(name: str, answer: str) -> None:
    family = check_family("reasoning_gym", {"datasets": {name: 1.0}}, count=1)
    for index in range(6):
        _, reward = asyncio.run(act(family, [answer], index))
        assert isinstance(reward, Scored), reward
        assert reward.total == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"datasets": {"no_such": 1.0}}, "no_such"),
        ({"datasets": {"coin_flip": 1.0}, "options": {"coin_flip": {"no_such": 1}}}, "no_such"),
    ],
)
def test_what_the_package_does_not_know_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_family("reasoning_gym", arguments).task("train", 0)


@pytest.mark.parametrize("name", ["arc_agi", "rearc", "knights_knaves"])
def test_entries_reach_their_scorer_as_they_are(name: str) -> None:
    """These scorers compare tuples, which JSON would turn into lists; the last has texts of numpy."""
    entry = open_dataset(name, "{}")[0]
    assert scorer_of(name, entry) == "scorer"
    assert score(entry["answer"], name, repr(to_plain(entry)))
