"""Rewards of the policy's own confidence."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from voters import ask, build

from turnwise.core.types import Invalid, Sample
from turnwise.testing.builders import make_group, make_trajectory, make_turn
from turnwise_rewards.unlabelled.confidence import ENTROPY, SELF_CERTAINTY, average_last, join_close


class Scores:
    """Scores the tokens of samples by their ids, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, samples: Sequence[Sample], column: str = "policy_logprobs", /) -> list[Any]:
        self.asked.append(column)
        return [sample.token_ids[sample.loss_mask].astype(float) for sample in samples]


def test_the_mean_over_all_sampled_tokens_and_no_others() -> None:
    scores = Scores()
    group = make_group(
        make_trajectory(make_turn([90, 91], [1, 2]), make_turn([92], [6], parent=0), member=0),
        make_trajectory(make_turn([90, 91], [5]), member=1, reward=None),
        make_trajectory(make_turn([90], [8, 10]), member=2),
    )
    said = asyncio.run(ask(build(SELF_CERTAINTY, score=scores), group))
    assert said[0] == 3.0  # (1 + 2 + 6) / 3: every token counts once, whatever its turn
    assert isinstance(said[1], Invalid)
    assert said[2] == 9.0
    assert asyncio.run(ask(build(ENTROPY, score=scores), group))[2] == -9.0
    assert scores.asked == ["self_certainty", "policy_entropy"]


def test_an_attempt_without_tokens_is_invalid_with_the_reason() -> None:
    [said] = asyncio.run(ask(build(ENTROPY, score=Scores()), make_group(make_trajectory())))
    assert said == Invalid(reason="no sampled token trains, so none has a confidence", retryable=False)


def test_differences_of_arithmetic_are_no_differences() -> None:
    # 1 and 1 + 2e-7 are one attempt's reply scored twice; 1.1 is another's
    assert join_close([1.1, 1.0 + 2e-7, 1.0]) == pytest.approx([1.1, 1.0 + 1e-7, 1.0 + 1e-7])
    joined = join_close([1.0, 1.0 + 2e-7, 1.0])
    assert len(set(joined)) == 1
    assert join_close([2.0, 1.0, 3.0]) == [2.0, 1.0, 3.0]
    assert join_close([]) == []


def test_only_the_last_tokens_may_count() -> None:
    values = np.array([1.0, 2.0, 3.0, 10.0])
    assert average_last(values, 1.0) == 4.0
    assert average_last(values, 0.5) == 6.5
    assert average_last(values, 0.25) == 10.0
    assert average_last(values, 0.01) == 10.0
    assert average_last(values, 0.3) == 6.5  # 1.2 tokens are two
    assert average_last(values[:3], 1 / 3) == pytest.approx(3.0)
