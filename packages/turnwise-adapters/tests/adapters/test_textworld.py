"""TextWorld through the adapter."""

import asyncio

import pytest
from played_games import act, check_family, need, play, success

from turnwise.environments.registry import load_family

FACTS = {"narrate": False, "theme": "basic", "rooms": 2, "objects": 3, "quest_length": 2, "num_games": 3}


def test_games_are_made_from_seeds_and_the_package_solves_them() -> None:
    need("textworld", "a")
    family = check_family("textworld", FACTS, count=3)
    assert success(family, "oracle", 3) == 1.0
    # Tasks take the three games of a split in turn, or some of them.
    assert len({family.task("train", at).prompt for at in range(12)}) <= 3


def test_the_player_sees_its_room_and_no_other() -> None:
    need("textworld", "a")
    family = load_family("textworld", {**FACTS, "show_actions": "never", "hints": False})
    task = family.task("train", 0)
    assert task.prompt[0].text.count("room room") == 1
    messages, reward = asyncio.run(play(family, task, "oracle"))
    assert reward.total == 1.0
    assert len(messages) >= 4


def test_a_command_that_the_game_does_not_admit_is_told() -> None:
    need("textworld", "a")
    seen, reward = asyncio.run(act(load_family("textworld", FACTS), ["eat the house"]))  # type: ignore[arg-type]
    assert seen[0].startswith("error: 'eat the house' is no legal action; choose one of: ")
    assert reward.part("illegal_actions") == 1.0


@pytest.mark.slow
def test_a_compiled_game_tells_its_story() -> None:
    need("textworld", "a")
    family = load_family("textworld", {"num_games": 1, "rooms": 2, "quest_length": 2})
    messages, reward = asyncio.run(play(family, family.task("heldout", 0), "oracle"))
    assert reward.part("success") == 1.0
    assert len(messages[0].text) > 200
