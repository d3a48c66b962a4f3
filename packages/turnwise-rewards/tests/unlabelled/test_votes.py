"""Rewards of agreement: the majority's answer, and the share that agrees."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voters import ask, build, make_votes

from turnwise.core.errors import ConfigError
from turnwise.core.types import Invalid, Scored
from turnwise_rewards.unlabelled.coin import COIN
from turnwise_rewards.unlabelled.votes import MAJORITY, SELF_CONSISTENCY, count_votes

ANSWERS = st.lists(st.one_of(st.none(), st.sampled_from("abcd")), min_size=1, max_size=12)


def values(kind: Any, *answers: str | None, rewards: Any = None, **options: Any) -> list[Any]:
    return list(asyncio.run(ask(build(kind, **options), make_votes(*answers, rewards=rewards))))


def test_the_most_common_answer_is_the_label() -> None:
    assert values(MAJORITY, "7", "8", "7.", None, "7") == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_a_tie_gives_every_member_the_share_of_the_tied_answers() -> None:
    assert values(MAJORITY, "7", "8", "7", "8", "9") == [0.4] * 5
    assert values(MAJORITY, "8", "7", "9", "8", "7") == [0.4] * 5, "the order decides nothing"


def test_without_any_answer_there_is_no_label_and_no_error() -> None:
    assert values(MAJORITY, None, None, None) == [0.0] * 3
    assert count_votes([None, None]).outcome == "no answer"
    assert count_votes([]).outcome == "no answer"


def test_a_label_may_need_a_share_of_all_attempts() -> None:
    assert values(MAJORITY, "7", "7", "8", None, min_share=0.5) == [1.0, 1.0, 0.0, 0.0]
    assert values(MAJORITY, "7", "7", "8", None, min_share=0.51) == [0.5] * 4


def test_a_group_without_label_may_be_invalid_with_the_reason() -> None:
    reason = "no label: tie; the most common answer has 50% of 2 votes"
    assert values(MAJORITY, "7", "8", undecided="invalid") == [Invalid(reason=reason, retryable=False)] * 2
    assert values(MAJORITY, None, undecided="invalid")[0].reason.startswith("no label: no answer")


def test_attempts_that_could_not_be_scored_do_not_vote() -> None:
    # without the two crashed attempts 8 leads by 2 to 1; with them 7 would
    said = values(MAJORITY, "7", "7", "7", "8", "8", rewards={0: None, 1: None})
    assert said[2:] == [0.0, 1.0, 1.0]
    assert all(isinstance(value, Invalid) for value in said[:2])


@given(ANSWERS, st.randoms(use_true_random=False))
def test_votes_do_not_depend_on_the_order(answers: list[str | None], random: Any) -> None:
    given_values = values(MAJORITY, *answers)
    order = random.sample(range(len(answers)), len(answers))
    assert values(MAJORITY, *(answers[i] for i in order)) == [given_values[i] for i in order]


@given(ANSWERS)
def test_the_mean_of_the_votes_is_the_share_of_the_most_common_answer(answers: list[str | None]) -> None:
    said = values(MAJORITY, *answers)
    assert sum(said) / len(said) == pytest.approx(count_votes(answers).share)


@given(ANSWERS, st.lists(st.floats(-1, 1), min_size=12, max_size=12))
def test_no_reward_reads_the_environment_s(answers: list[str | None], labels: list[float]) -> None:
    for kind in (MAJORITY, SELF_CONSISTENCY, COIN):
        group = make_votes(*answers)
        other = replace(
            group,
            trajectories=tuple(
                replace(t, reward=Scored.of(labels[i], {"success": labels[i]}))
                for i, t in enumerate(group.trajectories)
            ),
        )
        reward = build(kind)
        assert asyncio.run(ask(reward, group)) == asyncio.run(ask(reward, other))


def test_the_share_that_agrees() -> None:
    assert values(SELF_CONSISTENCY, "7", "8", "7", None) == [0.5, 0.25, 0.5, 0.0]
    # of the three others: one, none, one
    others = values(SELF_CONSISTENCY, "7", "8", "7", None, counts_own=False)
    assert others == pytest.approx([1 / 3, 0.0, 1 / 3, 0.0])
    alone = values(SELF_CONSISTENCY, "7", counts_own=False)
    assert alone == [Invalid(reason="there is no other attempt to agree with", retryable=False)]


def test_the_coin_is_a_coin_and_repeats() -> None:
    group = make_votes(*["7"] * 400)
    first, second = (asyncio.run(ask(build(COIN), group)) for _ in range(2))
    assert first == second
    assert 150 < sum(first) < 250
    assert sum(asyncio.run(ask(build(COIN, probability=1.0), group))) == 400


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (MAJORITY, {"min_share": 2}, "min_share"),
        (MAJORITY, {"reed": "boxed"}, "reed"),
        (SELF_CONSISTENCY, {"read": "box"}, "read"),
        (COIN, {"probability": -1}, "probability"),
    ],
)
def test_wrong_options_are_refused_by_name(kind: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(kind, **options)
