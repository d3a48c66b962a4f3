"""Attempts ranked against each other: who gets which score, what the judge reads, and what is no verdict."""

import asyncio
import re

import pytest

from turnwise.core.errors import RewardError
from turnwise.core.judging import EpisodeJudges
from turnwise.core.messages import text_message
from turnwise.core.types import ConversationOpening, Scored, ToolCall, Trajectory, TrajectoryGroup
from turnwise.core.verdicts import Question, Verdict
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_rewards.ranked.ranking import EQUAL, Ranking, RankingOptions
from turnwise_rewards.ranked.transcript import write_transcript


class ByNumber:
    """Scores an answer by the number in it, and lists its lines backwards."""

    def __init__(self, second: str | None = None) -> None:
        self.questions: list[Question] = []
        self.second = second

    async def judge(self, question: Question) -> Verdict:
        self.questions.append(question)
        scores = [int(re.findall(r"\d+", text)[0]) / 10 for text in question.answers]
        marks = tuple((f"answer {number}", str(score)) for number, score in enumerate(scores, 1))
        if self.second is not None:
            marks = (marks[0], *([("answer 2", self.second)] if self.second else []), *marks[2:])
        return Verdict(score=0.5, marks=marks[::-1])

    async def close(self) -> None: ...


def said(text: str, member: int, *, scored: bool = True) -> Trajectory:
    turn = make_turn([1], [2], message=text_message("assistant", text))
    return make_trajectory(turn, member=member, reward=Scored(total=0.0) if scored else None)


def score(group: TrajectoryGroup, judge: ByNumber, seed: int = 0) -> list[float]:
    ranking = Ranking(RankingOptions(judge="ranker"), seed)
    return list(asyncio.run(ranking.score(group, EpisodeJudges({"ranker": judge}))))  # type: ignore[arg-type]


def test_every_attempt_gets_its_own_score_whatever_the_order() -> None:
    group = make_group(*(said(f"I have {number}", member) for member, number in enumerate((3, 9, 1, 7, 5))))
    orders = set()
    for seed in range(8):
        judge = ByNumber()
        assert score(group, judge, seed) == [0.3, 0.9, 0.1, 0.7, 0.5]
        [question] = judge.questions
        orders.add(question.answers)
    assert len(orders) > 1  # no attempt has a place of its own


def test_equal_attempts_are_one_and_invalid_ones_are_left_out() -> None:
    group = make_group(said("I have 3", 0), said("I have 8", 1), said("I have 3", 2), said("I have 9", 3, scored=False))
    judge = ByNumber()
    assert score(group, judge) == [0.3, 0.8, 0.3, EQUAL]
    assert len(judge.questions[0].answers) == 2


def test_nothing_is_asked_where_there_is_nothing_to_compare() -> None:
    judge = ByNumber()
    assert score(make_group(said("I have 3", 0), said("I have 3", 1)), judge) == [EQUAL, EQUAL]
    assert judge.questions == []


@pytest.mark.parametrize(("second", "shown"), [("", "None"), ("high", "'high'"), ("nan", "'nan'")])
def test_a_score_that_is_missing_or_no_number_is_no_verdict(second: str, shown: str) -> None:
    group = make_group(said("I have 3", 0), said("I have 8", 1))
    with pytest.raises(RewardError, match=f"the judge 'ranker' ranks answers, and its verdict has answer 2={shown}"):
        score(group, ByNumber(second))


def test_a_transcript_has_replies_calls_and_results_and_names_later_conversations() -> None:
    call = make_turn(
        [1],
        [2],
        message=text_message(
            "assistant", "I look.", tool_calls=(ToolCall(id="c", name="look", arguments='{"at": 1}'),)
        ),
        observations=(text_message("tool", "a door"),),
    )
    helper = make_turn([1], [2], message=text_message("assistant", "Done."), conversation=1)
    openings = (
        ConversationOpening(name="main", messages=(text_message("user", "Find it."),)),
        ConversationOpening(name="helper", messages=(text_message("user", "Help."),)),
    )
    lost = make_turn([1], [2], message=text_message("assistant", "Nobody read this."), is_received=False)
    trajectory = make_trajectory(call, helper, lost, conversations=openings)
    assert write_transcript(trajectory).splitlines() == [
        "assistant: I look.",
        'call look({"at": 1})',
        "tool: a door",
        "[helper]",
        "user: Help.",
        "assistant: Done.",
    ]
