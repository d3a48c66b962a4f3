"""Which answer an attempt gives, and when two are the same."""

import math
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from voters import make_voter

from turnwise.core.types import StopReason, ToolCall, reply_message, text_message
from turnwise.testing.builders import make_trajectory, make_turn
from turnwise_rewards.unlabelled.answers import (
    AnswerOptions,
    Compare,
    Read,
    compute_cluster_entropy,
    read_answer,
    to_form,
)


@pytest.mark.parametrize(
    ("text", "read", "expected"),
    [
        ("<answer> Blue Seven </answer>", "auto", "blue seven"),
        (r"so \boxed{12}", "auto", "12"),
        (r"<answer> \boxed{1,200} </answer>", "auto", "1200"),
        (r"<answer> 3 </answer> or \boxed{4}", "auto", "4"),
        (r"<answer> 3 </answer> or \boxed{4}", "tag", "3"),
        ("<answer> 3 </answer>", "boxed", None),
        (r"\boxed{1} no, \boxed{2} and then \boxed{3}", "boxed", "3"),
        ("<answer>1</answer><answer>2</answer>", "tag", "2"),
        (r"<think> \boxed{9} </think>", "auto", None),
        ("the answer is 7", "auto", None),
        ("The answer is 7.", "reply", "answer is 7"),
        ("<answer> </answer>", "auto", None),
        (r"\boxed{}", "auto", None),
        ("<answer> 5", "auto", None),
        ("<answer> 5", "reply", None),
        ("", "reply", None),
    ],
)
def test_the_answer_of_a_reply(text: str, read: Read, expected: str | None) -> None:
    assert read_answer(make_voter(0, text), AnswerOptions(read=read)) == expected


def test_only_the_last_reply_of_the_first_conversation_answers() -> None:
    options = AnswerOptions()
    first = make_turn([1], [2], message=text_message("assistant", r"\boxed{1}"))
    last = make_turn([3], [4], parent=0, message=text_message("assistant", r"\boxed{2}"))
    asked = make_turn([5], [6], conversation=1, message=text_message("assistant", r"\boxed{3}"))
    assert read_answer(make_trajectory(first, last), options) == "2"
    assert read_answer(make_trajectory(first, last, asked), options) == "2"
    call = ToolCall(id="0", name="search", arguments="{}")
    calls = make_turn([3], [4], parent=0, message=reply_message(r"\boxed{2}", tool_calls=(call,)))
    assert read_answer(make_trajectory(first, calls), options) is None
    assert read_answer(make_trajectory(), options) is None


def test_a_reply_that_a_limit_cut_is_no_whole_answer() -> None:
    assert read_answer(make_voter(0, "seven", stop=StopReason.MAX_TURN_TOKENS), AnswerOptions(read="reply")) is None
    assert read_answer(make_voter(0, r"\boxed{7} and", stop=StopReason.MAX_TURN_TOKENS), AnswerOptions()) == "7"


@pytest.mark.parametrize(
    ("one", "other", "compare", "same"),
    [
        ("7", "+7", "numbers", True),
        ("1,000", "1000", "numbers", True),
        ("3.50", "3.5", "numbers", True),
        ("-5", "5", "numbers", False),
        ("3.14", "314", "numbers", False),
        ("3.14", "314", "squad", True),
        ("The Blue Lantern", "blue lantern", "numbers", True),
        (r"\frac{1}{2}", r"\dfrac{1}{2}", "math", True),
        (r"\frac{1}{2}", r"\frac{1}{3}", "math", False),
        (r"\left( 1, 2 \right)", "(1,2)", "math", True),
        (r"\frac{1}{2}", "0.5", "math", False),  # equal as values; spellings are not computed
        ("$12$", "12.", "math", True),
    ],
)
def test_answers_with_one_form_are_the_same(one: str, other: str, compare: Compare, same: bool) -> None:
    assert (to_form(one, compare) == to_form(other, compare)) is same


@pytest.mark.parametrize("compare", ["numbers", "squad", "math"])
@given(text=st.text(max_size=40))
@example(text="\xad")
def test_no_text_breaks_a_form_and_only_invisible_ones_have_none(text: str, compare: Compare) -> None:
    form = to_form(text, compare)
    assert form != ""
    if compare != "math" and not text.split():
        assert form is None
    if compare != "math" and any(unicodedata.category(letter)[0] in "LN" for letter in text):
        assert form is not None


def test_the_entropy_of_clusters_by_hand() -> None:
    # shares 1/2, 1/4, 1/4: 1.5 bits; attempts without an answer agree with nobody
    assert compute_cluster_entropy(["a", "a", "b", "c"]) == pytest.approx(1.5 * math.log(2))
    assert compute_cluster_entropy(["a", "a", None, None]) == pytest.approx(1.5 * math.log(2))
    assert compute_cluster_entropy(["a"] * 4) == 0
    assert compute_cluster_entropy([None] * 4) == pytest.approx(math.log(4))
    assert compute_cluster_entropy([]) == 0
