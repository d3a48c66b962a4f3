"""Gymnasium and MiniGrid through the adapters."""

import asyncio

import numpy as np
import pytest
from played_games import act, check_family, need, success

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.environments.registry import load_family
from turnwise_adapters.drawings import space_out, write_colours
from turnwise_adapters.gymnasium import GymnasiumArguments, GymnasiumGame, write_numbers

LAKE = {"id": "FrozenLake-v1", "make": {"is_slippery": False}, "map_size": 4, "spaced": True, "max_actions": 10}


def test_colours_of_a_drawing_become_marks() -> None:
    assert write_colours("\x1b[41mS\x1b[0mF") == "[S]F"
    # Taxi's passenger (blue) stands where the taxi (yellow) is, beside the destination (magenta).
    assert write_colours("\x1b[34;1m\x1b[43mR\x1b[0m\x1b[0m:\x1b[35mG\x1b[0m") == "<[R]>:(G)"
    assert space_out("[S]F\nHG") == " @ F\n H G"


def test_every_seed_of_a_lake_has_a_map_and_the_expert_crosses_it() -> None:
    need("gymnasium", "a")
    family = check_family("gymnasium", LAKE)
    assert len({family.task("train", at).prompt for at in range(6)}) > 3
    assert success(family, "oracle", 6) == 1.0
    assert success(family, "random", 20) <= 0.3


def test_what_the_lake_shows_follows_the_player() -> None:
    need("gymnasium", "a")
    family = load_family("gymnasium", {"id": "FrozenLake-v1", "make": {"is_slippery": False}, "show_actions": "never"})
    seen, reward = asyncio.run(act(family, ["right", "swim", "down"]))  # type: ignore[arg-type]
    # The map of the package: SFFF FHFH FFFH HFFG; right, then down into the hole at row 1, column 1.
    assert family.task("train", 0).prompt[0].text == "[S]FFF\nFHFH\nFFFH\nHFFG\n"
    assert seen == [
        "S[F]FF\nFHFH\nFFFH\nHFFG",
        "error: 'swim' is no legal action; choose one of: left, down, right, up",
    ]
    assert (reward.part("success"), reward.part("illegal_actions")) == (0.0, 1.0)


@pytest.mark.parametrize("arguments", [{"id": "Taxi-v4", "max_actions": 30}, {"id": "CliffWalking-v1"}])
def test_the_expert_solves_toy_text(arguments: dict) -> None:
    need("gymnasium", "a")
    if arguments["id"].startswith("Cliff"):
        arguments = {**arguments, "win_reward": -2.0}  # its last step costs 1, a fall 100
    assert success(check_family("gymnasium", arguments), "oracle", 3) == 1.0


def test_blackjack_is_numbers_and_has_no_oracle() -> None:
    need("gymnasium", "a")
    family = check_family("gymnasium", {"id": "Blackjack-v1"})
    assert len(family.task("train", 0).prompt[0].text.splitlines()[0].split()) == 3
    with pytest.raises(ConfigError, match="no expert"):
        family.policy("oracle")


def test_what_cannot_be_played_is_one_line() -> None:
    need("gymnasium", "a")
    with pytest.raises(ConfigError, match="cannot make 'NoSuch-v0'"):
        load_family("gymnasium", {"id": "NoSuch-v0"}).task("train", 0)
    with pytest.raises(ConfigError, match="Pendulum-v1: its actions are Box"):
        load_family("gymnasium", {"id": "Pendulum-v1"}).task("train", 0)


def test_minigrid_tells_what_lies_ahead_and_the_search_finds_the_key() -> None:
    need("minigrid", "a")
    arguments = {"id": "MiniGrid-DoorKey-5x5-v0", "max_actions": 40}
    family = check_family("minigrid", arguments, count=2)
    assert family.task("train", 0).prompt[0].text.startswith("Mission: use the key to open the door")
    assert success(family, "oracle", 2) == 1.0


def test_a_turn_in_minigrid_turns_the_view() -> None:
    need("minigrid", "a")
    # An empty room of 3 by 3 free cells; the player starts at its upper left and looks right, the goal is lower right.
    family = load_family("minigrid", {"id": "MiniGrid-Empty-5x5-v0", "show_actions": "never"})
    view = family.task("train", 0).prompt[0].text.strip().splitlines()[1:]
    assert view == ["wall: 3 ahead", "green goal: 2 ahead 2 right"]
    seen, _ = asyncio.run(act(family, ["right", "forward"]))  # type: ignore[arg-type]
    assert seen == ["wall: 3 ahead\ngreen goal: 2 ahead 2 left", "wall: 2 ahead\ngreen goal: 1 ahead 2 left"]
    with pytest.raises(ConfigError, match="give some of left, right"):
        load_family("minigrid", {"id": "MiniGrid-Empty-5x5-v0", "actions": ["fly"]})


def test_numbers_have_the_digits_of_their_own_type() -> None:
    for value, text in (
        (np.float32(0.1), "0.1"),
        (np.float32(1 / 3), "0.333"),
        (0.5, "0.5"),
        (np.array([0.1, -2.0, 1e-9], np.float32), "0.1 -2 0"),
        (np.array([[1, 0], [0, 1]]), "1 0\n0 1"),
        (np.int64(7), "7"),
        ((np.float32(0.25), 3, "x"), "0.25 3 x"),
        ({"at": np.array([0.1], np.float32)}, "at: 0.1"),
        (np.array([np.inf, np.nan], np.float32), "inf nan"),
        (np.float64(12345.6789), "12345.679"),
    ):
        assert write_numbers(value) == text


def test_a_mask_belongs_to_actions_that_start_above_zero() -> None:
    game = GymnasiumGame(GymnasiumArguments(id="Own-v0"))
    game._names = {"5": 5, "6": 6, "7": 7}
    game._mask = game._read_mask({"action_mask": np.array([0, 1, 1], np.int8)})
    assert game.legal_actions() == ("6", "7")
    game._mask = game._read_mask({})
    assert game.legal_actions() == ("5", "6", "7")
    with pytest.raises(EnvironmentFault, match="'action_mask'\\] has 2 entries for 3 actions"):
        game._read_mask({"action_mask": [1, 1]})


def test_a_registered_environment_with_a_start_and_a_mask_is_played() -> None:
    need("gymnasium", "a")
    import gymnasium

    class Own(gymnasium.Env):  # type: ignore[misc, type-arg, unused-ignore]
        action_space = gymnasium.spaces.Discrete(3, start=5)
        observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)

        def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
            return np.array([0.1, 0.7], np.float32), {"action_mask": np.array([0, 1, 1], np.int8)}

        def step(self, action: int) -> tuple[object, np.float32, np.bool_, bool, dict[str, object]]:
            won = np.bool_(action == 7)
            return np.array([0.3, 0.7], np.float32), np.float32(won), won, False, {"action_mask": [1, 1, 1]}

    gymnasium.register("turnwise/Own-v0", entry_point=lambda **_: Own(), disable_env_checker=True)
    family = load_family("gymnasium", {"id": "turnwise/Own-v0"})
    assert "0.1 0.7" in family.task("train", 0).prompt[0].text
    seen, reward = asyncio.run(act(family, ["5", "6", "7"]))  # type: ignore[arg-type]
    assert seen[0].startswith("error: '5' is no legal action; choose one of: 6, 7")
    assert "0.3 0.7" in seen[1]
    assert reward.part("success") == 1.0


def test_an_environment_without_a_rendering_need_not_take_render_mode() -> None:
    need("gymnasium", "a")
    import gymnasium

    class Counter(gymnasium.Env):  # type: ignore[misc, type-arg, unused-ignore]
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Discrete(20)

        def __init__(self, start: int) -> None:
            self.start = start

        def reset(self, *, seed: int | None = None, options: object = None) -> tuple[int, dict[str, object]]:
            return self.start, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, object]]:
            return self.start + action, 1.0, True, False, {}

    gymnasium.register("turnwise/Counter-v0", entry_point=Counter)
    game = GymnasiumGame(GymnasiumArguments(id="turnwise/Counter-v0", make={"start": 7}))
    assert game.open(seed=0) == "7"
    assert game.step("1").text == "8"


def test_what_the_old_interface_returns_is_named() -> None:
    need("gymnasium", "a")
    import gymnasium

    class Old(gymnasium.Env):  # type: ignore[misc, type-arg, unused-ignore]
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Discrete(20)

        def reset(self, *, seed: int | None = None, options: object = None) -> object:
            return (3, {}) if seed else 3

        def step(self, action: int) -> object:
            return 1, 1.0, True, {}

    gymnasium.register("turnwise/Old-v0", entry_point=Old, disable_env_checker=True)
    game = GymnasiumGame(GymnasiumArguments(id="turnwise/Old-v0"))
    with pytest.raises(EnvironmentFault, match=r"Old-v0: reset returns int; it must return \(observation, info\)"):
        game.open(seed=0)
    game.open(seed=1)
    expected = r"step returns 4 values; it must return \(observation, reward, terminated"
    with pytest.raises(EnvironmentFault, match=expected):
        game.step("1")
