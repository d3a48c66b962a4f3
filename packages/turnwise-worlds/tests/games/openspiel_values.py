"""Print what OpenSpiel says about uniform play, for `test_values.py`: `pip install open-spiel`, then run this file."""

from __future__ import annotations

import importlib


def main() -> None:
    """One line per game: the value for player 0, and the exploitability."""
    pyspiel = importlib.import_module("pyspiel")
    policies = importlib.import_module("open_spiel.python.policy")
    exploitability = importlib.import_module("open_spiel.python.algorithms.exploitability")
    scores = importlib.import_module("open_spiel.python.algorithms.expected_game_score")
    for name in ("kuhn_poker", "leduc_poker"):
        game = pyspiel.load_game(name)
        uniform = policies.UniformRandomPolicy(game)
        value = scores.policy_value(game.new_initial_state(), [uniform, uniform])[0]
        print(f"{name} value {float(value)!r} exploitability {float(exploitability.exploitability(game, uniform))!r}")


if __name__ == "__main__":
    main()
