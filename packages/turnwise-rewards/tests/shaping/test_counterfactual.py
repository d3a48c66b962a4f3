"""The counterfactual of a call, with a policy that is written down: what it is asked, and what counts."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from turnwise.core.judging import EpisodeJudges
from turnwise.core.keys import Span
from turnwise.core.messages import ToolCall
from turnwise.core.types import Invalid, ToolRecord
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_rewards.shaping.counterfactual import CounterfactualReward

RECORD = ToolRecord(call=ToolCall(id="0", name="search", arguments=""), observation="", error=None, seconds=0.0)
NEEDED = 7
"""A token without which the last reply, token 9, has half of its probability of 0.8."""


class Policy:
    """Scores samples, and keeps what it was asked."""

    def __init__(self, without: float) -> None:
        self.asked: list[list[int]] = []
        self.places: list[list[int]] = []
        """Where the samples show pictures."""
        self._without = without

    async def __call__(self, samples, column="policy_logprobs", /):
        self.asked += [sample.token_ids.tolist() for sample in samples]
        self.places += [[span.start for span in sample.images] for sample in samples]
        assert all(sample.token_ids[sample.loss_mask].tolist() == [9] for sample in samples)
        return [
            np.log(np.array([0.8 if NEEDED in sample.token_ids else self._without], np.float32)) for sample in samples
        ]


def make_calls(member=0, **fields):
    """Prompt 1, call 2, answer 7, call 3, answer 4, last reply 9."""
    turns = [
        make_turn([1], [2], tool_records=(RECORD,)),
        make_turn([NEEDED], [3], parent=0, tool_records=(RECORD,)),
        make_turn([4], [9], parent=1),
    ]
    return make_trajectory(*turns, member=member, **fields)


def score(*members, without=0.4, factor=2.0):
    policy = Policy(without)
    reward = CounterfactualReward(score_samples=policy, factor=factor)
    return asyncio.run(reward.score(make_group(*members), EpisodeJudges({}))), policy.asked


def test_a_call_counts_if_the_last_reply_is_less_likely_without_it() -> None:
    values, asked = score(make_calls(), without=0.399)
    assert values == [0.5]  # the first call brought the token 7
    assert asked == [[1, 2, 7, 3, 4, 9], [1, 3, 4, 9], [1, 2, 7, 9]]


@pytest.mark.parametrize(("factor", "value"), [(1.9, 0.5), (2.1, 0.0)])
def test_the_factor_decides(factor, value) -> None:
    assert math.log(2.1) > math.log(0.8 / 0.4) > math.log(1.9)
    assert score(make_calls(), factor=factor)[0] == [value]


def test_members_keep_their_order_and_a_failed_one_is_not_asked_about() -> None:
    silent = make_trajectory(make_turn([1], [9]), member=1)
    values, asked = score(make_calls(), silent, make_calls(member=2, reward=None), make_calls(member=3), without=0.1)
    assert values == [0.5, 0.0, 0.0, 0.5]
    assert len(asked) == 6


def test_several_conversations_are_invalid() -> None:
    two = make_trajectory(make_turn([1], [9]), make_turn([1], [9]))
    [value] = score(two)[0]
    assert isinstance(value, Invalid)
    assert "no single conversation" in value.reason


def test_a_call_in_the_last_reply_has_no_later_reply() -> None:
    """The turn limit ended the trajectory: nothing rests on the call."""
    last = make_trajectory(make_turn([1], [9], tool_records=(RECORD,)))
    assert score(last) == ([0.0], [])


def test_pictures_stay_at_the_tokens_that_show_them() -> None:
    turns = list(make_calls().turns)
    for at in (1, 2):
        turns[at] = replace(turns[at], images=(Span(start=0, length=1, digest=f"{at}"),))
    policy = Policy(0.4)
    member = make_group(replace(make_calls(), turns=tuple(turns)))
    asyncio.run(CounterfactualReward(score_samples=policy, factor=2.0).score(member, EpisodeJudges({})))
    # 1 2 [7] 3 [4] 9; without the first call and its answer 1 3 [4] 9; without the second 1 2 [7] 9.
    assert policy.places == [[2, 4], [2], [2]]
