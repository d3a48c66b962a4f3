"""Rewards of clusters of equal answers."""

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voters import ask, build, make_votes

from turnwise.core.errors import ConfigError
from turnwise_rewards.unlabelled.answers import compute_cluster_entropy
from turnwise_rewards.unlabelled.clusters import CLUSTER_ENTROPY

ANSWERS = st.lists(st.one_of(st.none(), st.sampled_from("abcd")), min_size=1, max_size=12)


def values(*answers: str | None, **options: Any) -> list[Any]:
    return list(asyncio.run(ask(build(CLUSTER_ENTROPY, **options), make_votes(*answers))))


def test_every_attempt_gets_the_share_of_its_cluster() -> None:
    assert values("7", "7", "8", None) == [0.5, 0.5, 0.25, 0.25]
    assert values("7", "7", "8", None, value="log") == pytest.approx([-math.log(2)] * 2 + [-2 * math.log(2)] * 2)


@given(ANSWERS)
def test_the_mean_of_the_logarithms_is_minus_the_entropy(answers: list[str | None]) -> None:
    said = values(*answers, value="log")
    assert sum(said) / len(said) == pytest.approx(-compute_cluster_entropy(answers), abs=1e-12)


def test_outside_the_bounds_a_group_has_no_differences() -> None:
    # entropy of 3:1 is 0.811 bits of at most 2: 0.406 of the highest
    inside, mean = [0.75, 0.75, 0.75, 0.25], 0.625
    assert values("7", "7", "7", "8", min_entropy=0.4, max_entropy=0.41) == inside
    assert values("7", "7", "7", "8", min_entropy=0.41) == [mean] * 4
    assert values("7", "7", "7", "8", max_entropy=0.4) == [mean] * 4
    assert values("7", "8", "9", "6", max_entropy=1.0) == [0.25] * 4
    assert values("7") == [1.0]


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min_entropy=0\.8 is above max_entropy=0\.2"):
        build(CLUSTER_ENTROPY, min_entropy=0.8, max_entropy=0.2)
