"""The rules of the games, by hand."""

from collections.abc import Hashable
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_worlds.games.game import Game, forfeit, read_moves, write_prompt
from turnwise_worlds.games.games import GAMES
from turnwise_worlds.games.graph import build_graph
from turnwise_worlds.games.kuhn import Kuhn, KuhnState
from turnwise_worlds.games.leduc import Leduc, LeducState
from turnwise_worlds.games.negotiation import (
    Negotiation,
    NegotiationState,
    compute_nash_share,
    is_pareto_optimal,
)
from turnwise_worlds.games.nim import Nim, NimState
from turnwise_worlds.games.tictactoe import TicTacToe


def play_through(game: Game[Any], state: Hashable, *moves: str) -> Any:
    for move in moves:
        assert move in game.moves(state)
        state = game.play(state, move)
    return state


@pytest.mark.parametrize(
    ("said", "won"),
    [
        (("check", "check"), -1),
        (("check", "bet", "fold"), -1),
        (("check", "bet", "call"), -2),
        (("bet", "fold"), 1),
        (("bet", "call"), -2),
    ],
)
def test_kuhn_pays_the_pot_to_the_higher_card_or_to_who_did_not_fold(said: tuple[str, ...], won: float) -> None:
    game = Kuhn()
    end = play_through(game, KuhnState(cards=("J", "Q")), *said)
    assert game.mover(end) is None
    assert game.returns(end) == (won, -won)


def test_a_kuhn_player_reads_its_own_card_and_what_was_said() -> None:
    game, state = Kuhn(), KuhnState(cards=("J", "K"))
    assert write_prompt(game, state) == " kuhn player0 card J said moves check bet"
    state = game.play(state, "bet")
    assert write_prompt(game, state) == " kuhn player1 card K said bet moves fold call"
    assert read_moves(write_prompt(game, state)) == ("fold", "call")


@pytest.mark.parametrize(
    ("cards", "said", "won"),
    [
        ("JQQ", ("check", "check", "check", "check"), -1),  # a pair wins
        ("JQK", ("check", "check", "check", "check"), -1),  # the higher rank wins
        ("KKJ", ("raise", "raise", "call", "raise", "raise", "call"), 0),  # equal ranks split
        ("KJQ", ("raise", "raise", "call", "raise", "raise", "call"), 13),  # 1 + 4 + 8
        ("KJQ", ("raise", "fold"), 1),
        ("KJQ", ("raise", "raise", "fold"), -3),
        ("KJQ", ("raise", "call", "check", "raise", "fold"), -3),
        ("KJQ", ("check", "raise", "raise", "fold"), 3),
        ("KJQ", ("check", "check", "raise", "raise", "fold"), -5),  # 1 + 4
    ],
)
def test_leduc_pays_what_the_loser_put_in(cards: str, said: tuple[str, ...], won: float) -> None:
    game = Leduc()
    end = play_through(game, LeducState(cards=(cards[0], cards[1]), public=cards[2]), *said)
    assert game.mover(end) is None
    assert game.returns(end) == (won, -won)


def test_the_public_card_of_leduc_is_seen_once_it_is_turned_up() -> None:
    game, state = Leduc(), LeducState(cards=("J", "Q"), public="K")
    assert "K" not in write_prompt(game, state)
    state = play_through(game, state, "raise", "raise")
    assert game.moves(state) == ("fold", "call")  # no third raise
    state = game.play(state, "call")
    assert write_prompt(game, state) == " leduc player0 card J said raise raise call public K said moves check raise"


def test_tic_tac_toe_ends_with_a_line_or_a_full_board() -> None:
    game = TicTacToe()
    end = play_through(game, "." * 9, "a", "d", "b", "e", "c")
    assert (game.mover(end), game.returns(end)) == (None, (1.0, -1.0))
    full = play_through(game, "." * 9, *"abcegdfih")
    assert (game.mover(full), game.returns(full)) == (None, (0.0, 0.0))
    state = play_through(game, "." * 9, "e", "a")
    assert write_prompt(game, state) == " tictactoe player0 o - - - x - - - - moves b c d f g h i"


def test_who_takes_the_last_object_wins_nim() -> None:
    game, state = Nim(), NimState(heaps=(2, 0, 1))
    assert game.moves(state) == ("aone", "atwo", "cone")
    end = play_through(game, state, "atwo", "cone")
    assert (game.mover(end), game.returns(end)) == (None, (-1.0, 1.0))


def test_a_negotiation_pays_what_was_accepted() -> None:
    game = Negotiation()
    state = NegotiationState(values=((4, 0, 0), (0, 3, 1)))
    assert write_prompt(game, state).startswith(" negotiation player0 bookfour hatnil ballnil said moves keep keepball")
    agreed = play_through(game, state, "keepbookball", "accept")
    assert game.returns(agreed) == (1.0, 0.75)
    assert not is_pareto_optimal(agreed, game.returns(agreed))  # the ball is worth nothing to player 0
    assert compute_nash_share(agreed, game.returns(agreed)) == 0.75
    countered = play_through(game, state, "keepbookball", "keephatball", "accept")
    assert game.returns(countered) == (1.0, 1.0)
    assert is_pareto_optimal(countered, game.returns(countered))
    refused = play_through(game, state, "keep", "keep", "keep", "refuse")
    assert (game.mover(refused), game.returns(refused)) == (None, (0.0, 0.0))


def test_where_both_want_one_item_alone_either_may_get_it() -> None:
    state = NegotiationState(values=((4, 0, 0), (4, 0, 0)))
    assert compute_nash_share(state, (1.0, 0.0)) == compute_nash_share(state, (0.0, 1.0)) == 1.0
    assert compute_nash_share(state, (0.0, 0.0)) == 0.0


# ------------------------------------------------------------------------------------------------ every game


@given(st.sampled_from(sorted(GAMES)), st.integers(0, 10**6))
def test_every_game_ends_and_no_end_is_below_the_lowest(name: str, seed: int) -> None:
    game, random = GAMES[name], Random(seed)  # type: ignore[index]
    state, count = random.choice(game.deals()), 0
    while (mover := game.mover(state)) is not None:
        assert mover in (0, 1)
        assert len(set(game.moves(state))) == len(game.moves(state)) > 0
        assert all(move.isalpha() for move in game.moves(state))
        state, count = game.play(state, random.choice(game.moves(state))), count + 1
    assert count <= game.max_moves
    returns = game.returns(state)
    assert min(returns) >= game.lowest
    assert not game.zero_sum or sum(returns) == 0


def test_breaking_the_rules_is_never_better_than_a_legal_end() -> None:
    assert (forfeit(Kuhn(), 0), forfeit(Kuhn(), 1)) == ((-2.0, 2.0), (2.0, -2.0))
    assert forfeit(Leduc(), 1) == (13.0, -13.0)
    assert forfeit(Negotiation(), 0) == forfeit(Negotiation(), 1) == (0.0, 0.0)
    for name in ("kuhn", "leduc", "nim", "tictactoe"):
        game = GAMES[name]
        ends = [node.returns for node in build_graph(game).nodes if node.place is None]
        for player in (0, 1):
            assert min(end[player] for end in ends) == forfeit(game, player)[player]


def test_graphs_have_the_known_sizes() -> None:
    sizes = {name: build_graph(GAMES[name]) for name in ("kuhn", "leduc", "tictactoe", "nim")}
    assert [len(sizes[name].information_sets) for name in ("kuhn", "leduc", "tictactoe")] == [12, 288, 4520]
    assert len(sizes["tictactoe"].nodes) == 5478
    assert [name for name, graph in sizes.items() if graph.is_tree] == ["kuhn", "leduc"]
    assert [name for name, graph in sizes.items() if graph.has_perfect_information] == ["tictactoe", "nim"]
    heaps = [h for h in product(range(4), repeat=3) if sum(size > 0 for size in h) > 1]
    assert len(Nim().deals()) == len(heaps) == 54
