"""ALFWorld's own engine through the adapter, on generated rooms."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from played_games import act, need, play

from turnwise.core.errors import ConfigError
from turnwise.environments.registry import load_family
from turnwise_adapters.alfworld.family import Alfworld
from turnwise_adapters.alfworld.game import to_admissible
from turnwise_adapters.alfworld.houses import KINDS, LAMP, House, build_house, write_game

FAMILY = "turnwise_adapters.alfworld.family:Alfworld"
HEAT = House(
    kind="pick_heat_then_place_in_recep",
    receptacles=("Fridge", "Microwave", "CounterTop", "SinkBasin"),
    things=(("Potato", 0), ("Fork", 2)),
    target="Potato",
    destination="CounterTop",
)


def play_house(house: House, actions: list[str], **arguments: Any) -> tuple[list[str], Any]:
    """What a family of this one house answers."""
    family = Alfworld(show_actions="never", reply="call", max_actions=50, **arguments)
    family.make_game = lambda seed: write_game(house, Random(0))  # type: ignore[method-assign]
    return asyncio.run(act(family, actions))


@pytest.mark.parametrize("kind", KINDS)
def test_rooms_have_an_unsolved_task_and_the_things_where_they_can_be(kind: Any) -> None:
    need("alfworld", "worlds")
    from alfworld.gen.constants import VAL_ACTION_OBJECTS, VAL_RECEPTACLE_OBJECTS

    for seed in range(200):
        house = build_house(kind, Random(seed), copies=2, num_things=6)
        assert house == build_house(kind, Random(seed), copies=2, num_things=6)
        asked = [house.receptacles[at] for name, at in house.things if name == house.target]
        assert len(asked) >= (2 if kind == "pick_two_obj_and_place" else 1)
        assert house.destination not in asked
        assert all(name in VAL_RECEPTACLE_OBJECTS[house.receptacles[at]] for name, at in house.things if name != LAMP)
        if kind == "look_at_obj_in_light":
            assert LAMP in dict(house.things)
        else:
            assert house.destination in house.receptacles
            assert house.target in VAL_RECEPTACLE_OBJECTS[house.destination]
        if "heat" in kind:
            assert "Microwave" in house.receptacles
            assert house.target in VAL_ACTION_OBJECTS["Heatable"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_planner_solves_every_kind(kind: Any) -> None:
    need("alfworld", "worlds")
    game = Alfworld(kinds={kind: 1.0}, copies=1, num_things=3).build_game()
    game.open(1)
    for _ in range(12):
        action = game.expert_action()
        assert action is not None
        outcome = game.step(action)
        if outcome.done:
            break
    game.close()
    assert (outcome.won, outcome.reward) == (True, 1.0)


def test_tasks_and_episodes_repeat() -> None:
    need("alfworld", "worlds")
    arguments = {"copies": 1, "num_things": 3, "kinds": {"pick_and_place_simple": 1}, "max_actions": 3}
    family, other = load_family(FAMILY, arguments), load_family(FAMILY, arguments)
    task = family.task("train", 0)
    assert task == other.task("train", 0)
    assert asyncio.run(play(family, task, "random", 7)) == asyncio.run(play(other, task, "random", 7))


def test_the_sentences_and_the_reward_are_alfworlds() -> None:
    need("alfworld", "worlds")
    seen, reward = play_house(
        HEAT,
        [
            *("go to fridge 1", "take potato 1 from fridge 1", "open fridge 1", "take potato 1 from fridge 1"),
            *("go to microwave 1", "heat potato 1 with microwave 1", "examine potato 1", "go to countertop 1"),
            "move potato 1 to countertop 1",
        ],
    )
    assert seen == [
        "You arrive at fridge 1. The fridge 1 is closed.",
        "Nothing happens.",
        "You open the fridge 1. The fridge 1 is open. In it, you see a potato 1.",
        "You pick up the potato 1 from the fridge 1.",
        "You arrive at microwave 1. The microwave 1 is closed.",
        "You heat the potato 1 using the microwave 1.",
        "This is a hot potato 1.",
        "You arrive at countertop 1. On the countertop 1, you see a fork 1.",
    ]
    assert (reward.total, reward.part("nothing_happened"), reward.part("illegal_actions")) == (1.0, 1.0, 0.0)


def test_a_cold_potato_is_no_solution_and_text_is_no_command() -> None:
    need("alfworld", "worlds")
    seen, reward = play_house(
        HEAT,
        [
            *("go to fridge 1", "open fridge 1", "take potato 1 from fridge 1", "go to countertop 1"),
            *("move potato 1 to countertop 1", "__import__('os')", "help me"),
        ],
    )
    assert seen[-3:] == ["You move the potato 1 to the countertop 1.", "Nothing happens.", "Nothing happens."]
    assert (reward.total, reward.part("nothing_happened")) == (0.0, 2.0)


def test_an_engine_is_used_again_and_shows_the_same() -> None:
    need("alfworld", "worlds")
    family = Alfworld(copies=1, num_things=3, kinds={"pick_and_place_simple": 1})
    seen: dict[int, list[str]] = {1: [], 3: []}
    engines = set()
    for seed in (1, 3, 1, 3):
        game: Any = family.build_game()
        seen[seed].append(game.open(seed) + game.step(game.expert_action()).text)
        engines.add(id(game._engine))
        game.close()
    assert len(engines) == 1
    assert all(len(set(texts)) == 1 for texts in seen.values())
    assert seen[1] != seen[3]


def test_python_ends_well_after_many_games() -> None:
    need("alfworld", "worlds")
    program = (
        "from turnwise_adapters.alfworld.family import Alfworld\n"
        "family = Alfworld(copies=1, num_things=3)\n"
        "games = [family.build_game() for _ in range(3)]\n"
        "[game.open(number) for number, game in enumerate(games)]\n"
        "[game.close() for game in games]\n"
    )
    run = subprocess.run([sys.executable, "-c", program], timeout=120, stdin=subprocess.DEVNULL, check=False)
    assert run.returncode == 0  # two unloaded copies of the planner's library end Python with signal 11


def test_the_words_of_older_releases_mean_the_same() -> None:
    new, old = ["move mug 1 to desk 1", "look"], ["put mug 1 in/on desk 1", "look"]
    for text in ("move mug 1 to desk 1", "put mug 1 in/on desk 1", "put mug 1 on desk 1", "put mug 1 in desk 1"):
        assert to_admissible(text, new) == "move mug 1 to desk 1"
    assert to_admissible("move mug 1 to desk 1", old) == "put mug 1 in/on desk 1"
    assert to_admissible("put mug 2 in/on desk 1", new) == "put mug 2 in/on desk 1"
    assert to_admissible("look", new) == "look"


def test_published_games_are_read_from_their_folder(tmp_path: Path) -> None:
    need("alfworld", "worlds")
    for split, number in (("train", 1), ("valid_unseen", 2)):
        folder = tmp_path / split / f"{HEAT.kind}-Potato-None-CounterTop-{number}" / "trial_T1"
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(json.dumps({**write_game(HEAT, Random(0)), "solvable": True}))
    family = load_family(FAMILY, {"games": str(tmp_path), "max_actions": 15})
    task = family.task("heldout", 0)
    assert task.payload["kind"] == HEAT.kind
    _, reward = asyncio.run(play(family, task, "oracle"))
    assert reward.total == 1.0
    with pytest.raises(ConfigError, match=r"has no game\.tw-pddl of kind look_at_obj_in_light; fetch the games"):
        load_family(FAMILY, {"games": str(tmp_path), "kinds": {"look_at_obj_in_light": 1}})
    for name, written, message in (
        ("valid_seen", "{", "is no game of ALFWorld: JSONDecodeError"),
        ("valid_seen", "{}", "is no game of ALFWorld: it has no pddl_domain"),
    ):
        broken = tmp_path / name / f"{HEAT.kind}-x" / "trial" / "game.tw-pddl"
        broken.parent.mkdir(parents=True, exist_ok=True)
        broken.write_text(written)
        with pytest.raises(ConfigError, match=message):
            load_family(FAMILY, {"games": str(tmp_path), "heldout": name}).task("heldout", 0)
    broken.write_text(json.dumps({**write_game(HEAT, Random(0)), "solvable": False}))
    with pytest.raises(ConfigError, match="none of"):
        load_family(FAMILY, {"games": str(tmp_path), "heldout": "valid_seen"}).task("heldout", 0)


def test_what_cannot_be_played_is_one_line() -> None:
    need("alfworld", "worlds")
    with pytest.raises(ConfigError, match="kinds"):
        load_family(FAMILY, {"kinds": {"sleep": 1}})
    with pytest.raises(ConfigError, match="a weight that is not above 0"):
        load_family(FAMILY, {"kinds": {"look_at_obj_in_light": 0}})
