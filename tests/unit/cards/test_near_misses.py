"""Perturbed gold answers: what they are, and that the truth they claim is the truth."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from turnwise.cards.near_misses import list_near_misses, list_near_plays
from turnwise.core.types import Message, ToolCall, text_message
from turnwise.rewards.answers import exact_match


def perturb(gold: str, other: str = "Orin Vale") -> dict[str, tuple[str, bool | None]]:
    return {miss.kind: (miss.answer, miss.is_right) for miss in list_near_misses(gold, other, Random(0))}


def test_a_name() -> None:
    found = perturb("Mira Tolen")
    assert found["another entity"] == ("Orin Vale", False)
    assert found["two answers"] == ("Mira Tolen or Orin Vale", False)
    assert found["a negation"] == ("not Mira Tolen", False)
    assert found["an extra word"] == ("Mira Tolen Junior", False)
    assert found["a word missing"] == ("Mira", False)
    assert found["capitals"] == ("MIRA TOLEN", True)
    assert found["an article"] == ("the Mira Tolen", True)
    assert "off by one" not in found
    assert "a trailing unit" not in found
    changed, is_right = found["a letter changed"]
    assert is_right is False
    assert sum(one != other for one, other in zip(changed, "Mira Tolen", strict=True)) == 1


def test_a_number() -> None:
    found = perturb("1999", "7")
    assert found["off by one"] == ("2000", False)
    assert found["a trailing unit"] == ("1999 metres", None)
    assert found["groups of digits"] == ("1,999", True)
    assert "capitals" not in found
    assert "groups of digits" not in perturb("12")


def test_without_another_answer_none_is_said() -> None:
    assert {"another entity", "two answers"}.isdisjoint(perturb("Mira", ""))


@given(st.one_of(st.integers(0, 10**6).map(str), st.from_regex(r"[A-Z][a-z]{3,7} [A-Z][a-z]{3,7}", fullmatch=True)))
def test_a_grader_that_is_exact_agrees_with_every_truth(gold: str) -> None:
    for kind, (answer, is_right) in perturb(gold, "Orin Vale 3").items():
        if is_right is not None:
            assert bool(exact_match(answer, [gold])) is is_right, kind


def call(arguments: str) -> Message:
    return Message(role="assistant", content=(), tool_calls=(ToolCall(id="c", name="move", arguments=arguments),))


def test_replies_are_perturbed() -> None:
    replies = [call('{"x": 1, "y": 9}'), text_message("assistant", "done")]
    other = [call('{"x": 5}'), text_message("assistant", "no")]
    found = {play.kind: play for play in list_near_plays(replies, other)}
    assert found["other spaces in calls"].is_right
    assert found["other spaces in calls"].replies[0].tool_calls[0].arguments == '{\n  "x": 1,\n  "y": 9\n}'
    assert found["a space behind the last text"].replies == (replies[0], text_message("assistant", "done "))
    assert found["the last number off by one"].replies == (call('{"x": 1, "y": 10}'), replies[1])
    assert found["the last reply left out"].replies == (replies[0],)
    assert found["the first reply left out"].replies == (replies[1],)
    assert found["the last reply of another task"].replies == (replies[0], other[1])
    assert found["all replies of another task"].replies == tuple(other)
    assert {play.is_right for kind, play in found.items() if kind != "other spaces in calls"} == {None}


def test_a_reply_without_calls_numbers_or_words_has_few_perturbations() -> None:
    assert [play.kind for play in list_near_plays([text_message("assistant", "")], [])] == []
    assert [play.kind for play in list_near_plays([text_message("assistant", "3")], [])] == [
        "a space behind the last text",
        "the last number off by one",
    ]
    assert list(list_near_plays([], [text_message("assistant", "3")])) == []
    assert [play.kind for play in list_near_plays([call("{not json")], [])] == []
