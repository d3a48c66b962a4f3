"""Crafter through the adapter."""

import asyncio
from random import Random
from typing import Any

import numpy as np
import pytest
from played_games import check_family, need, play, success

from turnwise.core.errors import ConfigError
from turnwise.environments.registry import load_family
from turnwise_adapters.crafter.arguments import ACHIEVEMENTS, ACTIONS
from turnwise_adapters.crafter.expert import Expert
from turnwise_adapters.crafter.view import describe_view
from turnwise_adapters.crafter.world import Worlds
from turnwise_adapters.game_family import GameFamily

FAMILY = "turnwise_adapters.crafter.family:Crafter"
NEAR: dict[str, Any] = {
    "goals": {"collect_wood": 1, "eat_cow": 1},
    "within": 9,
    "area": 16,
    "num_worlds": 2,
    "max_actions": 12,
}


def load(**arguments: Any) -> GameFamily:
    need("crafter", "worlds")
    family = load_family(FAMILY, arguments)
    assert isinstance(family, GameFamily)
    return family


def make_meadow() -> Any:
    """A world of grass alone; the player stands at (10, 10) and looks down."""
    need("crafter", "worlds")
    env = Worlds(20, 64).open(0)
    for creature in env._world.objects:
        if creature is not env._player:
            env._world.remove(creature)
    for x in range(20):
        for y in range(20):
            env._world[x, y] = "grass"
    return env


def follow(env: Any, goal: str, limit: int = 60) -> list[str]:
    """The expert's actions until it reaches the goal."""
    from crafter import constants

    taken: list[str] = []
    while not env._player.achievements[goal] and len(taken) < limit:
        action = Expert(env).act(goal)
        assert action is not None
        env.step(constants.actions.index(action))
        taken.append(action)
    return taken


def test_the_names_are_crafters() -> None:
    need("crafter", "worlds")
    from crafter import constants

    assert tuple(constants.actions) == ACTIONS
    assert tuple(constants.achievements) == ACHIEVEMENTS


def test_tasks_ask_for_goals_that_are_near_and_the_expert_reaches_them() -> None:
    need("crafter", "worlds")
    family = check_family(FAMILY, NEAR, count=2)
    assert success(family, "oracle", 4) == 1.0
    assert success(family, "random", 4) <= 0.5
    assert family.task("train", 0).payload["kind"] in NEAR["goals"]
    # Two worlds a split, each with two goals.
    assert len({family.task("train", at).prompt for at in range(20)}) <= 4


def test_the_view_tells_the_nearest_thing_of_every_kind() -> None:
    env = make_meadow()
    env._world[8, 9] = "tree"  # 2 left, 1 up
    env._world[10, 6] = "tree"  # 4 up: farther, and outside the 9 by 7 cells in view
    env._world[10, 11] = "water"
    env._world[14, 13] = "coal"  # the corner of the view
    env._world[15, 10] = "iron"  # one cell outside
    env._world[9, 10] = "sand"
    env._player.inventory.update(wood=2, food=4)
    assert describe_view(env, "terse") == (
        " face water\n water down 1\n tree left 2 up 1\n coal right 4 down 3\n food 4\n wood 2"
    )
    assert describe_view(env, "terse", sought="water").splitlines()[3:] == [" water down 1", " food 4", " wood 2"]
    assert describe_view(env, "full") == (
        "You face water.\nNearest: sand (1 left), water (1 down), tree (2 left, 1 up), coal (4 right, 3 down).\n"
        "health 9, food 4, drink 9, energy 9.\nYou carry: 2 wood."
    )


def test_the_expert_knows_what_a_tool_takes() -> None:
    env = make_meadow()
    for place in ((12, 10), (13, 10), (14, 10), (15, 10), (16, 10)):
        env._world[place] = "tree"
    env._world[10, 12] = "stone"
    # A table takes two wood, the pickaxe one more and the table beside; then two steps to the stone.
    taken = follow(env, "collect_stone")
    assert taken[:5] == ["move_right", "do", "move_right", "do", "place_table"]
    assert taken.count("do") == 4  # three trees and the stone
    assert taken.count("make_wood_pickaxe") == 1
    assert env._player.achievements["collect_stone"] == 1
    assert Expert(make_meadow()).act("collect_drink") is None  # there is no water
    assert Expert(make_meadow()).act("eat_plant") is None


def test_the_expert_digs_where_no_way_is_free() -> None:
    env = make_meadow()
    for x in range(20):
        for y in range(20):
            if (x, y) != (10, 10):
                env._world[x, y] = "stone"
    env._world[10, 7] = "coal"
    env._player.inventory["wood_pickaxe"] = 1
    assert follow(env, "collect_coal") == ["move_up", "do", "move_up", "do", "move_up", "do"]


def test_two_copies_of_a_world_stay_equal() -> None:
    # Crafter counts a chunk's creatures in the order of a set, which differs between copies.
    need("crafter", "worlds")
    worlds, random = Worlds(32, 64), Random(0)
    first, second = worlds.open(5), worlds.open(5)
    nights = 0
    for step in range(400):
        action = random.randrange(1, 5)
        for env in (first, second):
            env._player.inventory.update(health=9)
            env.step(action)
        if step % 100 == 99:
            second.draw()  # at night Crafter's picture has noise, which must not come from the world's numbers
            assert np.array_equal(first._sem_view(), second._sem_view())
            nights += int(first._world.daylight < 0.5)
    assert nights == 1  # at step 200


def test_the_first_picture_is_crafters_own() -> None:
    crafter = need("crafter", "worlds")
    own = crafter.Env(area=(20, 20), seed=6, length=None)
    family = load(area=20, pictures=True, style="terse", show_actions="never", max_actions=2)
    game = family.build_game()
    game.open(6)
    [picture] = game.pictures()
    assert (picture.width, picture.height) == (64, 64)
    assert picture.pixels == own.reset().tobytes()
    # The task's first message has the picture before the text, and so has every answer.
    task = family.task("train", 0)
    assert [type(part).__name__ for part in task.prompt[0].content] == ["ImagePart", "TextPart"]
    messages, _ = asyncio.run(play(family, task, "random"))
    assert [len(message.images) for message in messages if message.role == "tool"] == [1]


def test_the_dead_do_not_win_and_crafters_reward_counts() -> None:
    family = load(area=20, num_worlds=1)
    game: Any = family.build_game()
    game.open(0)
    x, y = map(int, game._env._player.pos)
    game._env._world[x, y + 1] = "lava"
    outcome = game.step("move_down")
    # Crafter's reward for ten lost tenths of health: (0 - 9) / 10.
    assert (outcome.done, outcome.won, outcome.reward) == (True, False, -0.9)


def test_blank_observations_leave_the_goal() -> None:
    shown, blank = load(**NEAR), load(**NEAR, observations="blank", style="terse")
    assert shown.task("heldout", 0).payload == blank.task("heldout", 0).payload
    messages, _ = asyncio.run(play(blank, blank.task("heldout", 0), "random"))
    goal = blank.task("heldout", 0).payload["kind"]
    assert goal in messages[0].text
    assert "face" not in messages[0].text
    assert {message.text for message in messages if message.role == "tool"} == {" nothing"}


def test_night_falls() -> None:
    env, dark = make_meadow(), []
    for step in range(300):
        env._player.inventory.update(health=9)
        env.step(0)
        if "It is dark." in describe_view(env, "full"):
            dark.append(step + 1)
    # Daylight is 1 - |cos(pi (step / 300 % 1 + 0.3))| ^ 3:
    # below 0.5 where |cos| > 0.794, from 0.793 pi (step 148) to 1.207 pi (step 272).
    assert (dark[0], dark[-1]) == (148, 272)


def test_what_cannot_be_asked_for_is_one_line() -> None:
    need("crafter", "worlds")
    for arguments, message in (
        ({"goals": {"eat_stone": 1}}, "goals has 'eat_stone'; use some of collect_coal"),
        ({"actions": ["fly"]}, "actions has 'fly'; use some of noop"),
        ({"goals": {"eat_cow": 0}}, "a weight that is not above 0"),
        ({"within": 5}, "within=5 has no effect without goals"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_family(FAMILY, arguments)
