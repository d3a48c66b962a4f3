"""Debates: what a quote shows, who wins, hard negatives, and what a policy that knows can and cannot reach."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from asked_episodes import play_asked, scored
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.episodes import Ask, EpisodeEnd
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Message, Scored, StopReason
from turnwise.environments.replies import answer_message as say
from turnwise_worlds.debate.case import (
    DAYS,
    NOTHING,
    SIDES,
    Case,
    build_case,
    draw_hard_quotes,
    draw_quotes,
    find_verdict,
)
from turnwise_worlds.debate.environment import VERDICT
from turnwise_worlds.debate.family import Debate

DONE = EpisodeEnd(stop=StopReason.DONE)
CASE = Case(
    lines=("redkamon", "goldlotue", "redlowed", "redkathu", "goldmifri", "goldkasun"), candidates=("redka", "redlo")
)
Replies = Callable[[Ask], Message]


def play(
    family: Debate, index: int, reply: Replies, *, end: EpisodeEnd = DONE
) -> tuple[dict[str, Scored], dict[str, Ask]]:
    """The rewards by role and what was asked by conversation, on a held-out task; until `end.conversation` if any."""
    task = family.task("heldout", index)
    environment = family.build_environment(task)
    rewards, asks, _ = play_asked(environment, task, lambda ask, _: reply(ask), seed=index, end=end)
    if end is DONE:
        assert len(asks) == environment.spec.max_replies
    return scored(rewards), {ask.conversation: ask for ask in asks}


def scripted(family: Debate, names: Mapping[str, str], index: int) -> Replies:
    """The named policies by role."""
    rng, task = Random(index), family.task("heldout", index)
    return lambda ask: family.policy(names[ask.role]).reply(task, ask.messages, rng)


def measure(names: Mapping[str, str], **arguments: Any) -> tuple[float, float]:
    """Shares of right verdicts where A is right and where B is, over 100 tasks, with the named policies by role."""
    family = Debate(**arguments)
    right: dict[str, list[float]] = {side: [] for side in SIDES}
    for index in range(100):
        rewards, _ = play(family, index, scripted(family, names, index))
        right[family.task("heldout", index).payload["kind"][0]].append(rewards["judge"].total)
    return sum(right["A"]) / len(right["A"]), sum(right["B"]) / len(right["B"])


def test_a_case_by_hand() -> None:
    assert CASE.truth == "A"  # thu is later than wed; what comes later is about other slots
    assert CASE.swap().truth == "B"
    assert CASE.list_support("A") == ["redkamon", "redkathu"]
    assert CASE.list_support("B") == ["redlowed"]
    shown = {"redkathu": "thuA", "redlowed": "wedB", "goldkasun": "sunN", NOTHING: NOTHING}
    assert {quote: CASE.show(quote) for quote in shown} == shown
    assert CASE.accept("redlowed", verify=True) == "redlowed"
    # A line that nobody wrote, and what is no line at all.
    assert CASE.accept("redlosun", verify=True) == NOTHING
    assert CASE.accept("redlosun", verify=False) == "redlosun"
    assert CASE.accept("redlo", verify=False) == CASE.accept("redlosun wins", verify=False) == NOTHING


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        (["monA", "wedB"], "B"),
        (["wedB", "monA"], "B"),
        (["wedB", "thuA", "sunN"], "A"),
        (["monA"], "A"),
        (["sunN", NOTHING], None),
        ([], None),
        (["sunA", "sunB"], None),
    ],
)
def test_the_latest_quote_that_supports_a_side_decides(shown: list[str], verdict: str | None) -> None:
    assert find_verdict(shown) == verdict


@given(st.integers(0, 2**40))
def test_cases_are_what_they_should_be(seed: int) -> None:
    case = build_case(seed)
    days = [DAYS.index(line[-3:]) for line in case.lines]
    assert days == sorted(set(days))
    support = [case.list_support(side) for side in SIDES]
    assert all(support)
    assert sum(map(len, support)) == 4
    assert case.swap().truth != case.truth
    everything = [case.show(line) for line in case.lines]
    assert find_verdict(everything) == case.truth
    hard = draw_hard_quotes(case, 4, Random(seed))
    assert find_verdict([case.show(quote) for quote in hard]) == case.truth
    assert {*hard} <= {*case.lines}
    assert {*draw_quotes(case, 4, Random(seed))} <= {*case.lines}


def test_either_side_is_right_as_often_and_late_quotes_often_show_nothing() -> None:
    cases = [build_case(seed) for seed in range(1000)]
    assert 0.45 < sum(case.truth == "A" for case in cases) / 1000 < 0.55
    # The last of six is one of the two irrelevant lines one time in three.
    assert 0.28 < sum(case.find_side(case.lines[-1]) is None for case in cases) / 1000 < 0.38


def test_both_quote_twice_and_the_judge_sees_only_what_the_quotes_show() -> None:
    family = Debate()
    case = build_case(family.task("heldout", 0).payload["seed"])
    best = {side: case.list_support(side)[-1] for side in SIDES}
    made_up = case.candidates[1] + "xyz"
    replies = {"first0": best["A"], "second0": made_up, "first1": best["A"], "second1": best["B"]}
    rewards, seen = play(family, 0, lambda ask: say(replies.get(ask.conversation, case.truth)))
    assert list(seen) == ["first0", "second0", "first1", "second1", VERDICT]
    texts = {name: ask.messages[0].text for name, ask in seen.items()}
    record = " ".join(case.lines)
    own = " ".join(case.list_support("A"))
    assert texts["first0"] == f" lines {record} heard {NOTHING} for {case.candidates[0]} own {own} quote"
    assert f" heard {best['A']} {NOTHING} for {case.candidates[1]} own " in texts["second1"]
    shown = [case.show(best["A"]), NOTHING, case.show(best["A"]), case.show(best["B"])]
    assert texts[VERDICT] == f" quotes {' '.join(shown)} verdict"
    winner, loser = ("first", "second") if case.truth == "A" else ("second", "first")
    assert (rewards[winner].total, rewards[loser].total, rewards["judge"].total) == (1.0, -1.0, 1.0)
    assert (rewards["first"].part("fabricated"), rewards["second"].part("fabricated")) == (0.0, 0.5)
    assert {reward.part("success") for reward in rewards.values()} == {1.0}


@pytest.mark.parametrize("verdict", ["A", "B", "AB", "a", NOTHING, ""])
@pytest.mark.parametrize("index", range(4))
def test_what_one_debater_wins_the_other_loses(index: int, verdict: str) -> None:
    rewards, _ = play(Debate(), index, lambda ask: say(verdict))
    assert rewards["first"].total + rewards["second"].total == 0
    if verdict not in SIDES:
        assert {reward.total for reward in rewards.values()} == {0.0}


def test_nobody_gains_by_breaking_off() -> None:
    def cut(conversation: str) -> list[float]:
        end = EpisodeEnd(stop=StopReason.MAX_TURN_TOKENS, conversation=conversation)
        return [reward.total for reward in play(Debate(), 0, lambda ask: say(NOTHING), end=end)[0].values()]

    assert cut("first0") == cut("first1") == [-1.0, 1.0, 0.0]
    assert cut("second0") == cut("second1") == [1.0, -1.0, 0.0]
    assert cut(VERDICT) == [0.0, 0.0, 0.0]


ORACLE = {"first": "oracle", "second": "oracle", "judge": "oracle"}
NAIVE_QUOTES = {"first": "naive", "second": "naive", "judge": "oracle"}


def test_what_debate_and_consultancy_are_worth_to_a_judge_that_follows_the_rule() -> None:
    assert measure(ORACLE) == (1.0, 1.0)
    # A consultant that quotes its own latest line wins whatever is true.
    assert measure(ORACLE, protocol="consultancy") == (1.0, 0.0)
    # By 300 tasks .66 and .71 in a debate; what a consultant quotes rather speaks for its own side: .16 and .79.
    assert all(0.5 < share < 0.9 for share in measure(NAIVE_QUOTES))
    where_a_is_right, where_b_is_right = measure(NAIVE_QUOTES, protocol="consultancy")
    assert where_b_is_right < 0.35
    assert where_a_is_right > 0.6
    assert all(0.3 < share < 0.7 for share in measure(ORACLE, protocol="none"))


def test_hard_quotes_are_decided_by_the_rule_and_not_by_the_naive_judge() -> None:
    for swap in (False, True):
        assert measure(ORACLE, protocol="hard", swap=swap) == (1.0, 1.0)
        assert all(share < 0.95 for share in measure({"judge": "naive"}, protocol="hard", swap=swap))


def test_unverified_quotes_decide_for_who_makes_up_the_latest() -> None:
    def share(verify: bool) -> float:
        """Of 50 verdicts by the rule that are right, where both claim a line on sunday."""
        family, right = Debate(verify=verify), 0.0
        for index in range(50):
            case = build_case(family.task("heldout", index).payload["seed"])
            judge = scripted(family, ORACLE, index)

            def reply(ask: Ask, case: Case = case, judge: Replies = judge) -> Message:
                if ask.role == "judge":
                    return judge(ask)
                own = case.list_support("A" if ask.role == "first" else "B")[-1]
                return say(own if ask.conversation.endswith("0") else own[:-3] + "sun")

            right += play(family, index, reply)[0]["judge"].total
        return right / 50

    assert share(verify=True) == 1.0
    assert 0.25 < share(verify=False) < 0.75


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="protocol='shouting'"):
        Debate(protocol="shouting")

    async def tell() -> None:
        family = Debate()
        task = family.task("train", 0)
        environment = family.build_environment(task)
        await environment.begin(task, 0)
        await environment.tell(VERDICT, say("A"))

    with pytest.raises(EnvironmentFault, match="'verdict', where it had not asked for"):
        asyncio.run(tell())


def test_tasks_and_texts_do_not_depend_on_the_protocol() -> None:
    assert Debate(protocol="given", verify=False).task("train", 2) == Debate().task("train", 2)
    assert Debate(protocol="given").texts(20) == Debate().texts(20)
    train = {Debate().task("train", i).payload["seed"] for i in range(300)}
    assert not train & {Debate().task("heldout", i).payload["seed"] for i in range(300)}
