"""Where an attempt leaves what would have succeeded, from values worked out by hand."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from turnwise.badcases.divergence import Divergence, Unknown, find_largest_fall
from turnwise.badcases.judged import find_by_judge, write_attempt
from turnwise.badcases.planned import compare
from turnwise.core.errors import RewardError
from turnwise.core.types import text_message
from turnwise.core.verdicts import Question, Verdict
from turnwise.testing.builders import make_task, make_trajectory, make_turn


def test_the_first_reply_that_brings_success_no_nearer_is_the_divergence() -> None:
    found = compare([4, 3, 3, None])
    assert (found.turn, found.lost, found.values) == (1, 2, (4.0, 3.0, 3.0, None))
    # Every reply was of the plan, so it is the last one that fails.
    assert (compare([3, 2, 1]).turn, compare([3, 2, 1]).lost) == (2, 2)
    # A reply that the oracle has to take back: 2 before, 3 after.
    assert compare([2, 3]).turn == 0
    # Lost in the middle of the attempt, before a wasted reply.
    assert (compare([3, None, None]).turn, compare([3, None, None]).lost) == (0, 0)
    # The oracle succeeds again after a state from which it does not: the first of them is the one.
    assert compare([3, None, 1]).lost == 0


@given(st.lists(st.one_of(st.none(), st.integers(1, 9)), max_size=6), st.integers(1, 9))
def test_a_failed_attempt_always_diverges_and_never_after_it_is_lost(rest: list[int | None], first: int) -> None:
    left = [first, *rest]
    found = compare(left)
    assert found.lost is not None
    assert 0 <= found.turn <= found.lost < len(left)


def test_the_largest_fall_counts_the_end_of_the_attempt() -> None:
    found = find_largest_fall("critic", [0.75, 0.75, 0.25])
    assert isinstance(found, Divergence)
    assert found.turn == 1
    last = find_largest_fall("continuations", [0.5, 0.5])
    assert isinstance(last, Divergence)
    assert last.turn == 1
    tie = find_largest_fall("continuations", [1.0, 0.5])
    assert isinstance(tie, Divergence)
    assert tie.turn == 0
    assert isinstance(find_largest_fall("continuations", [0.0, 0.0]), Unknown)
    assert isinstance(find_largest_fall("critic", []), Unknown)


class Judge:
    """A judge that names a reply."""

    def __init__(self, verdict: Verdict | None) -> None:
        self.verdict, self.asked = verdict, list[Question]()

    async def judge(self, question: Question) -> Verdict:
        self.asked.append(question)
        if self.verdict is None:
            raise RewardError("it is out of reach")
        return self.verdict

    async def close(self) -> None:
        pass


def test_a_judge_names_a_reply_of_the_attempt_or_none() -> None:
    turns = [make_turn([1], [2], message=text_message("assistant", text)) for text in ("first", "second")]
    task, attempt = make_task("Where?"), make_trajectory(*turns, reward=0.0)
    judge = Judge(Verdict(score=0.0, marks=(("reply", "1"),)))
    found = asyncio.run(find_by_judge(judge, task, attempt))
    assert isinstance(found, Divergence)
    assert (found.turn, found.method) == (1, "judge")
    assert [word for word, _ in judge.asked[0].form.marks[0].words] == ["0", "1"]
    assert write_attempt(task, attempt) == "task: Where?\nreply 0: first\nreply 1: second"
    for verdict, reason in (
        (Verdict(score=0.3), "a number alone"),
        (Verdict(score=0, marks=(("reply", "7"),)), "'7'"),
        (None, "out of reach"),
    ):
        unknown = asyncio.run(find_by_judge(Judge(verdict), task, attempt))
        assert isinstance(unknown, Unknown)
        assert reason in unknown.reason
