"""Which groups are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnwise.algorithms.advantages import is_informative


@pytest.mark.parametrize("size", range(1, 17))
def test_constant_groups_are_dropped(size: int) -> None:
    for metric in (0.0, 1.0, 0.1, 0.7):
        assert not is_informative([metric] * size)
    assert size == 1 or is_informative([1.0] + [0.0] * (size - 1))


def test_a_deviation_test_would_keep_a_constant_group() -> None:
    assert np.std([0.1] * 3) > 0
    assert not is_informative([0.1] * 3)


def test_unscored_members_and_tolerance() -> None:
    assert not is_informative([])
    assert not is_informative([None, 1.0, None])
    assert is_informative([None, 1.0, 0.0])
    assert not is_informative([0.5, 0.55], tolerance=0.1)
    with pytest.raises(ValueError, match="not finite"):
        is_informative([1.0, math.nan])
