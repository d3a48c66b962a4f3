"""Exact match, F1, answer extraction and the format reward, against hand-computed values."""

import pytest

from turnwise.core.types import StopReason, ToolCall, ToolCallError, text_message
from turnwise.rewards.answers import (
    AnswerCase,
    exact_match,
    extract_answer,
    f1,
    final_answer,
    format_score,
    is_well_formed,
    normalize_answer,
)

EXACT_MATCH_CASES = [
    ("Paris", ["Paris"], 1.0),
    ("paris", ["Paris"], 1.0),
    ("PARIS", ["paris"], 1.0),
    (" Paris ", ["Paris"], 1.0),
    ("Paris.", ["Paris"], 1.0),
    ("Paris!?", ["Paris"], 1.0),
    ('"Paris"', ["Paris"], 1.0),
    ("the Paris", ["Paris"], 1.0),
    ("The Beatles", ["Beatles"], 1.0),
    ("Beatles", ["The Beatles"], 1.0),
    ("a cat", ["cat"], 1.0),
    ("an apple", ["the apple"], 1.0),
    ("anapple", ["an apple"], 0.0),
    ("theatre", ["atre"], 0.0),
    ("cat", ["a  cat"], 1.0),
    ("New   York", ["New York"], 1.0),
    ("New\nYork", ["New York"], 1.0),
    ("New\tYork", ["New York"], 1.0),
    ("NewYork", ["New York"], 0.0),
    ("New-York", ["New York"], 0.0),  # the hyphen is dropped, not replaced: "newyork"
    ("New-York", ["newyork"], 1.0),
    ("U.S.A.", ["USA"], 1.0),
    ("U.S.", ["USA"], 0.0),
    ("it's", ["its"], 1.0),
    ("1,000", ["1000"], 1.0),
    ("1.5", ["15"], 1.0),  # a known coarseness of the normal form
    ("3", ["three"], 0.0),
    ("Paris, France", ["Paris"], 0.0),
    ("Paris", ["Paris, France"], 0.0),
    ("Paris", ["London", "Paris"], 1.0),
    ("London", ["London", "Paris"], 1.0),
    ("Rome", ["London", "Paris"], 0.0),
    ("", ["Paris"], 0.0),
    ("", [""], 1.0),
    ("the", ["a"], 1.0),  # both normal forms are empty
    ("the", ["Paris"], 0.0),
    ("Paris", [], 0.0),
    ("Zürich", ["zürich"], 1.0),
    ("Zurich", ["Zürich"], 0.0),
    ("unknown", ["unknown"], 1.0),
    ("is unknown", ["unknown"], 0.0),
    ("Mira Tolen", ["Tolen Mira"], 0.0),
    ("東京", ["東京"], 1.0),
]


@pytest.mark.parametrize(("prediction", "golds", "expected"), EXACT_MATCH_CASES)
def test_exact_match_on_hand_cases(prediction, golds, expected):
    assert exact_match(prediction, golds) == expected


def test_normalisation_is_idempotent():
    for prediction, golds, _ in EXACT_MATCH_CASES:
        for text in (prediction, *golds):
            assert normalize_answer(normalize_answer(text)) == normalize_answer(text)


@pytest.mark.parametrize(
    ("prediction", "golds", "expected"),
    [
        ("Mira Tolen", ["Mira Tolen"], 1.0),
        ("Tolen Mira", ["Mira Tolen"], 1.0),  # order does not count
        ("Mira", ["Mira Tolen"], 2 / 3),  # precision 1, recall 1/2
        ("the Mira of Tolen", ["Mira Tolen"], 0.8),  # "mira of tolen": precision 2/3, recall 1 -> 2*2/(3+2)
        ("cat cat", ["cat"], 2 / 3),  # one of two words shared: 2*1/(2+1)
        ("Orin Vale", ["Mira Tolen"], 0.0),
        ("Orin", ["Mira Tolen", "Orin Vale"], 2 / 3),  # the best gold answer counts
        ("", ["Mira"], 0.0),
        ("Mira", [], 0.0),
    ],
)
def test_f1_on_hand_cases(prediction, golds, expected):
    assert f1(prediction, golds) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> Vessa </answer>", "Vessa"),
        ("<answer>a</answer> then <answer>b</answer>", "b"),
        ("<answer>two\nlines</answer>", "two\nlines"),
        ("<answer>never closed <answer> b </answer>", "b"),
        ("<answer></answer>", ""),
        ("<answer> Vessa", None),
        ("Vessa </answer>", None),
        ("Vessa", None),
        ("", None),
    ],
)
def test_extract_answer(text, expected):
    assert extract_answer(text) == expected


def reply(text, reasoning="because"):
    return text_message("assistant", text, reasoning=reasoning)


def search(query="x", reasoning="because", text=""):
    return text_message(
        "assistant", text, reasoning=reasoning, tool_calls=(ToolCall(id="1", name="search", arguments=query),)
    )


def test_an_answer_in_the_prompt_or_in_an_earlier_reply_does_not_count():
    # Search-R1 parses the prompt too, whose example says Beijing: a model that answers nothing would be right here.
    assert final_answer(AnswerCase(replies=[reply("", None)], golds=["Beijing"])) == ""
    assert final_answer(AnswerCase(replies=[reply("<answer> Beijing </answer>"), search()], golds=["Beijing"])) is None
    assert final_answer(AnswerCase(replies=[], golds=["Beijing"])) is None


def test_a_last_reply_without_tags_answers_only_when_it_ended_the_episode():
    said = [reply("Port Vessa\n")]
    assert final_answer(AnswerCase(replies=said, golds=["x"])) == "Port Vessa"
    assert final_answer(AnswerCase(replies=said, golds=["x"], stop=StopReason.MAX_TURN_TOKENS)) is None
    assert final_answer(AnswerCase(replies=[reply("<answer> Port Ves")], golds=["x"])) is None


def test_well_formed_needs_reasoning_one_call_each_and_nothing_but_the_answer_last():
    assert is_well_formed([search(), search(), reply("<answer> a </answer>")])
    assert not is_well_formed([])
    assert not is_well_formed([search(reasoning=None), reply("<answer> a </answer>")])
    assert not is_well_formed([search(text="so "), reply("<answer> a </answer>")])
    assert not is_well_formed([reply("<answer> a </answer>"), reply("<answer> a </answer>")])
    assert not is_well_formed([search(), reply("it is <answer> a </answer>")])
    assert not is_well_formed([search(), reply("<answer> a </answer><answer> b </answer>")])
    error = ToolCallError(kind="no_action", raw="x", message="x")
    assert not is_well_formed(
        [text_message("assistant", "x", reasoning="r", tool_errors=(error,)), reply("<answer> a </answer>")]
    )


@pytest.mark.parametrize(
    ("replies", "information", "expected"),
    [
        ([search(), reply("<answer> Vessa </answer>")], [], 1.0),
        ([search(reasoning=None), reply("<answer> Vessa </answer>")], [], 0.8),  # 1 - 0.2
        ([search(), reply("<answer> Orin </answer>")], ["It is the Vessa."], 0.3),  # 0.2 + 0.1
        ([search(), reply("<answer> Orin </answer>")], ["It is Vessala."], 0.2),  # part of a word is no gold answer
        ([search(), reply("<answer> Orin </answer>")], [], 0.2),
        ([search(), reply("<answer> Orin </answer>", None)], ["Vessa"], 0.1),
        ([search()], ["Vessa"], 0.0),
    ],
)
def test_format_score_table(replies, information, expected):
    assert format_score(AnswerCase(replies=replies, golds=["Vessa"], information=information)) == pytest.approx(
        expected
    )
