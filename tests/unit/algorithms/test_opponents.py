"""Which past self speaks: by hand, and as often as its weight says."""

from collections import Counter

import pytest

from turnwise.algorithms.opponents import DECAY, Standings, choose_snapshot, list_snapshots


@pytest.mark.parametrize(
    ("version", "every", "expected"),
    [(0, 5, [0]), (4, 5, [0]), (5, 5, [0, 5]), (11, 5, [0, 5, 10]), (7, 0, [0])],
)
def test_the_past_is_the_start_and_every_checkpoint_since(version: int, every: int, expected: list[int]) -> None:
    assert list_snapshots(version, every) == expected


def test_the_loss_rate_counts_recent_games_more() -> None:
    standings = Standings()
    assert standings.loss_rate(3) == 0.5
    standings.count(3, 1.0)
    assert standings.loss_rate(3) == (1.0 + 0.5) / 2.0
    standings.count(3, 0.0)
    assert standings.loss_rate(3) == (DECAY + 0.5) / (DECAY + 1.0 + 1.0)
    again = Standings()
    again.load_state_dict(standings.state_dict())
    assert again.state_dict() == standings.state_dict()
    assert again.loss_rate(3) == standings.loss_rate(3)


def test_snapshots_are_drawn_by_the_share_of_games_lost() -> None:
    standings = Standings()
    for _ in range(200):
        standings.count(0, 0.0)
        standings.count(5, 1.0)
    weights = {0: standings.loss_rate(0), 5: standings.loss_rate(5), 10: 0.5}
    count = 4000
    drawn = Counter(choose_snapshot("wins", [0, 5, 10], standings, 1, "second", draw) for draw in range(count))
    for snapshot, weight in weights.items():
        assert drawn[snapshot] / count == pytest.approx(weight / sum(weights.values()), abs=0.03)
    even = Counter(choose_snapshot("uniform", [0, 5, 10], standings, 1, "second", draw) for draw in range(count))
    assert all(even[snapshot] / count == pytest.approx(1 / 3, abs=0.03) for snapshot in weights)
    assert choose_snapshot("latest", [0, 5, 10], standings, 1, "second", 0) == 10


def test_a_draw_has_one_opponent_whenever_it_is_asked() -> None:
    def draw(seed: int, *path: int | str) -> list[int]:
        return [choose_snapshot("uniform", range(50), Standings(), seed, *path, n) for n in range(20)]

    assert draw(1, "second") == draw(1, "second")
    assert draw(1, "second") != draw(2, "second")
    assert draw(1, "second") != draw(1, "third")
