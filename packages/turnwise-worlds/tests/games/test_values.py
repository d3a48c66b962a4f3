"""What policies are worth: known values of the games, hand-computed best responses, averages."""

import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise_worlds.games.games import GAMES
from turnwise_worlds.games.graph import GameGraph, build_graph
from turnwise_worlds.games.nim import NUMBERS
from turnwise_worlds.games.solve import list_best_moves, solve, solve_by_induction, solve_by_regrets
from turnwise_worlds.games.values import (
    Policy,
    average_policies,
    compute_best_response,
    compute_exploitability,
    compute_seat_mean,
    compute_value,
    compute_win_rate,
    uniform_policy,
)

KUHN, LEDUC, NIM = (build_graph(GAMES[name]) for name in ("kuhn", "leduc", "nim"))


def kuhn_policy(chances: dict[tuple[str, str], float]) -> Policy:
    """From the probability of bet or call by card and what was said; 0 where none is given."""
    policy = []
    for place in KUHN.information_sets:
        words = place.text.split()
        said = " ".join(words[words.index("said") + 1 : words.index("moves")])
        share = float(chances.get((words[words.index("card") + 1], said), 0.0))
        policy.append((1 - share, share))
    return policy


def kuhn_equilibrium(alpha: float) -> Policy:
    """Kuhn's family, for alpha in [0, 1/3]."""
    return kuhn_policy(
        {
            ("J", ""): alpha,
            ("K", ""): 3 * alpha,
            ("Q", "check bet"): alpha + 1 / 3,
            ("K", "check bet"): 1,
            ("J", "check"): 1 / 3,
            ("K", "check"): 1,
            ("Q", "bet"): 1 / 3,
            ("K", "bet"): 1,
        }
    )


def random_policy(graph: GameGraph, seed: int) -> Policy:
    random = Random(seed)
    policy = []
    for place in graph.information_sets:
        weights = [random.random() ** 3 for _ in place.moves]
        policy.append(tuple(weight / sum(weights) for weight in weights))
    return policy


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.25, 1 / 3])
def test_the_equilibria_of_kuhn_are_worth_one_eighteenth_and_nothing_beats_them(alpha: float) -> None:
    policy = kuhn_equilibrium(alpha)
    assert math.isclose(compute_value(KUHN, policy, policy), -1 / 18)
    assert abs(compute_exploitability(KUHN, policy)) < 1e-12


def test_beyond_the_family_kuhn_is_exploitable() -> None:
    assert compute_exploitability(KUHN, kuhn_equilibrium(0.5)) > 0.01
    bluffless = kuhn_equilibrium(0.0)
    bluffless = [
        (1.0, 0.0) if "player1 card J said check" in place.text else choice
        for place, choice in zip(KUHN.information_sets, bluffless, strict=True)
    ]
    assert compute_exploitability(KUHN, bluffless) > 0.01


def test_uniform_play_is_worth_what_openspiel_says() -> None:
    # packages/turnwise-worlds/tests/games/openspiel_values.py prints these.
    for graph, value, exploitability in (
        (KUHN, 0.125, 0.45833333333333326),
        (LEDUC, -0.078125, 2.373611111111111),
    ):
        uniform = uniform_policy(graph)
        assert math.isclose(compute_value(graph, uniform, uniform), value, rel_tol=1e-12)
        assert math.isclose(compute_exploitability(graph, uniform), exploitability, rel_tol=1e-12)


def test_the_best_response_to_one_who_always_folds_takes_the_ante() -> None:
    folds = kuhn_policy({})  # checks, and folds to a bet
    # Player 1 bets whatever it holds, and player 0 folds: 1 in every game. Player 0 bets at once.
    best = [compute_best_response(KUHN, folds, player=player) for player in (0, 1)]
    assert best == pytest.approx([1.0, 1.0])
    assert compute_exploitability(KUHN, folds) == pytest.approx(1.0)


def test_the_best_response_to_one_who_always_calls_bets_what_wins() -> None:
    calls = kuhn_policy({(card, said): 1.0 for card in "JQK" for said in ("bet", "check bet")})  # and never bets
    # As player 0 with J: check, and lose 1; with Q: bet or check, 0 on average; with K: bet, and win 2.
    assert math.isclose(compute_best_response(KUHN, calls, player=0), float(Fraction(-1 + 0 + 2, 3)))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_no_policy_beats_the_best_response_and_it_is_never_below_the_value(seed: int) -> None:
    policy = random_policy(KUHN, seed)
    best = [compute_best_response(KUHN, policy, player=player) for player in (0, 1)]
    for other in range(5):
        challenger = random_policy(KUHN, seed + 1 + other)
        assert compute_value(KUHN, challenger, policy) <= best[0] + 1e-12
        assert -compute_value(KUHN, policy, challenger) <= best[1] + 1e-12
    assert best[0] >= -1 / 18 - 1e-12
    assert best[1] >= 1 / 18 - 1e-12


def test_regrets_find_equilibria() -> None:
    policy = solve(GAMES["kuhn"])
    assert compute_exploitability(KUHN, policy) < 0.001
    assert abs(compute_value(KUHN, policy, policy) + 1 / 18) < 0.001


def test_the_value_of_leduc_is_between_what_best_responses_leave() -> None:
    policy = solve_by_regrets(LEDUC, num_iterations=100)
    low = -compute_best_response(LEDUC, policy, player=1)
    high = compute_best_response(LEDUC, policy, player=0)
    assert low <= -0.0856 <= high
    assert high - low < 0.06
    assert abs(compute_value(LEDUC, policy, policy) + 0.0856) < 0.005


def test_nim_is_lost_where_the_heaps_cancel() -> None:
    values, _ = solve_by_induction(NIM)
    best = list_best_moves(GAMES["nim"])
    for place in NIM.information_sets:
        words = place.text.split()
        heaps = [NUMBERS.index(word[1:]) for word in words[2:5]]
        mover_wins = (heaps[0] ^ heaps[1] ^ heaps[2]) != 0
        [node] = place.nodes
        assert values[node] == (1.0 if mover_wins == (place.mover == 0) else -1.0)
        for move in place.moves:
            left = list(heaps)
            left["abc".index(move[0])] -= NUMBERS.index(move[1:])
            cancels = (left[0] ^ left[1] ^ left[2]) == 0
            assert (move in best[place.text]) == (cancels or not mover_wins)
    assert compute_exploitability(NIM, solve(GAMES["nim"])) == 0.0


def test_tic_tac_toe_is_a_draw_and_loses_nothing_where_it_is_played_perfectly() -> None:
    game = GAMES["tictactoe"]
    graph, perfect = build_graph(game), solve(game)
    assert compute_value(graph, perfect, perfect) == compute_exploitability(graph, perfect) == 0.0
    best = list_best_moves(game)
    assert best[" tictactoe player0 x x - o o - - - - moves c f g h i"] == {"c"}
    assert best[" tictactoe player1 - - - - x - - - - moves a b c d f g h i"] == set("acgi")  # a corner
    assert len(best[" tictactoe player0 - - - - - - - - - moves a b c d e f g h i"]) == 9


def test_the_average_plays_as_one_of_the_policies_drawn_beforehand() -> None:
    policies = [random_policy(KUHN, seed) for seed in range(4)]
    averaged = average_policies(KUHN, policies)
    for seed in range(10, 15):
        opponent = random_policy(KUHN, seed)
        as_first = [compute_value(KUHN, policy, opponent) for policy in policies]
        assert math.isclose(compute_value(KUHN, averaged, opponent), sum(as_first) / 4, abs_tol=1e-12)
        as_second = [compute_value(KUHN, opponent, policy) for policy in policies]
        assert math.isclose(compute_value(KUHN, opponent, averaged), sum(as_second) / 4, abs_tol=1e-12)


def test_the_average_weighs_by_the_own_moves_before() -> None:
    # Of two players one never checks a king, so what it would do with a king after a check counts for nothing.
    bets = kuhn_policy({("K", ""): 1.0, ("K", "check bet"): 0.0})
    checks = kuhn_policy({("K", ""): 0.5, ("K", "check bet"): 1.0})
    averaged = average_policies(KUHN, [bets, checks])
    shares = {place.text: choice[1] for place, choice in zip(KUHN.information_sets, averaged, strict=True)}
    assert shares[" kuhn player0 card K said moves check bet"] == 0.75
    assert shares[" kuhn player0 card K said check bet moves fold call"] == 1.0


def test_policies_of_positions_that_are_reached_in_several_ways_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="nim: some positions can be reached in more than one way"):
        average_policies(NIM, [uniform_policy(NIM)])


def test_win_rates_of_two_add_up_to_one() -> None:
    one, two = random_policy(KUHN, 1), random_policy(KUHN, 2)
    assert math.isclose(compute_win_rate(KUHN, one, two) + compute_win_rate(KUHN, two, one), 1.0)
    assert math.isclose(compute_win_rate(KUHN, one, one), 0.5)
    graph, perfect = NIM, solve(GAMES["nim"])
    wins, earns = (measure(graph, perfect, uniform_policy(graph)) for measure in (compute_win_rate, compute_seat_mean))
    assert wins > 0.8
    assert earns == pytest.approx(2 * wins - 1)  # won or lost, and nothing else
