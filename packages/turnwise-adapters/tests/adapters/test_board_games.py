"""OpenSpiel and PettingZoo through the adapters."""

import asyncio

import pytest
from played_games import act, check_family, need, success

from turnwise.core.errors import ConfigError
from turnwise.environments.registry import load_family


@pytest.mark.parametrize("player", [0, 1])
def test_openspiel_shows_boards_and_search_beats_chance(player: int) -> None:
    need("pyspiel", "a")
    family = check_family("open_spiel", {"game": "tic_tac_toe", "player": player})
    assert "Actions: " in family.task("train", 0).prompt[0].text
    assert success(family, "oracle", 5) >= 0.8
    seen, reward = asyncio.run(act(family, ["no move"]))
    assert seen[0].startswith("error: 'no move' is no legal action; choose one of: ")
    assert reward.part("illegal_actions") == 1.0


def test_openspiel_hides_what_a_player_does_not_see() -> None:
    need("pyspiel", "a")
    family = check_family("open_spiel", {"game": "leduc_poker", "player": 1})
    assert "Private" in family.task("train", 0).prompt[0].text
    with pytest.raises(ConfigError, match="no expert"):
        family.policy("oracle")
    with pytest.raises(ConfigError, match="has hidden information"):
        load_family("open_spiel", {"game": "leduc_poker", "opponent": "search"}).task("train", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"game": "no_such_game"}, "cannot load 'no_such_game'"),
        ({"game": "matrix_rps"}, "has simultaneous moves"),
        ({"game": "tic_tac_toe", "player": 2}, "tic_tac_toe has 2 players"),
    ],
)
def test_openspiel_games_that_cannot_be_played_are_one_line(arguments: dict, message: str) -> None:
    need("pyspiel", "a")
    with pytest.raises(ConfigError, match=message):
        load_family("open_spiel", arguments).task("train", 0)


@pytest.mark.parametrize("module", ["tictactoe_v3", "connect_four_v3", "leduc_holdem_v4", "chess_v6"])
def test_pettingzoo_is_played_against_chance(module: str) -> None:
    need("pettingzoo", "a")
    family = check_family("pettingzoo", {"module": f"pettingzoo.classic.{module}", "player": 1}, count=2)
    rewards = [asyncio.run(act(family, [], seed))[1].total for seed in range(2)]
    assert rewards == [0.0, 0.0]


def test_tictactoe_is_drawn_with_its_cells_down_the_columns() -> None:
    need("pettingzoo", "a")
    family = load_family("pettingzoo", {"module": "pettingzoo.classic.tictactoe_v3", "show_actions": "never"})
    assert family.task("train", 0).prompt[0].text == ". . .\n. . .\n. . .\n"
    seen, _ = asyncio.run(act(family, ["3"]))  # type: ignore[arg-type]
    assert seen[0].splitlines()[0].split()[1] == "x"  # cell 3 is the top of the second column


def test_pettingzoo_names_a_module_that_is_none() -> None:
    need("pettingzoo", "a")
    with pytest.raises(ConfigError, match="cannot make"):
        load_family("pettingzoo", {"module": "no.such"}).task("train", 0)
