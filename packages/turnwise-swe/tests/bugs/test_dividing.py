"""How candidates are divided among programs."""

import pytest

from turnwise_swe.bugs.making import MIN_PER_PROGRAM, divide


@pytest.mark.parametrize(
    ("count", "num_programs", "sizes"),
    [(0, 2, []), (1, 2, [1]), (11, 2, [11]), (12, 2, [6, 6]), (13, 3, [7, 6]), (40, 3, [14, 13, 13])],
)
def test_a_program_is_started_only_for_enough_candidates(count: int, num_programs: int, sizes: list[int]) -> None:
    assert MIN_PER_PROGRAM == 6
    parts = divide(range(count), num_programs)
    assert [len(part) for part in parts] == sizes
    assert sorted(number for part in parts for number in part) == list(range(count))
