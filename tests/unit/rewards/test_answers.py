"""Exact match, F1, answer extraction and the format reward, against hand-computed values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.types import StopReason, ToolCall, ToolCallError, text_message
from turnwise.rewards.answers import (
    AnswerCase,
    exact_match,
    extract_answer,
    f1,
    final_answer,
    format_score,
    is_well_formed,
)
from turnwise.rewards.normal_form import normalize_answer

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
    ("3", ["three"], 0.0),
    ("Paris, France", ["Paris"], 0.0),
    ("Paris", ["Paris, France"], 0.0),
    ("Paris", ["London", "Paris"], 1.0),
    ("London", ["London", "Paris"], 1.0),
    ("Rome", ["London", "Paris"], 0.0),
    ("", ["Paris"], 0.0),
    ("", [""], 1.0),
    ("the", ["a"], 0.0),  # where everything would go, the last word stays
    ("", ["A"], 0.0),
    ("...", ["A"], 0.0),
    ("(A)", ["A"], 1.0),
    ("the A", ["A"], 1.0),
    ("The The", ["The"], 1.0),
    ("", ["+"], 0.0),
    ("-", ["+"], 0.0),
    ("+", ["+"], 1.0),
    ("the", ["Paris"], 0.0),
    ("Paris", [], 0.0),
    ("Zürich", ["zürich"], 1.0),
    ("Zurich", ["Zürich"], 0.0),
    ("unknown", ["unknown"], 1.0),
    ("is unknown", ["unknown"], 0.0),
    ("Mira Tolen", ["Tolen Mira"], 0.0),
    ("東京", ["東京"], 1.0),
]


@pytest.mark.parametrize("normalize", ["numbers", "squad"])
@pytest.mark.parametrize(("prediction", "golds", "expected"), EXACT_MATCH_CASES)
def test_exact_match_on_hand_cases(prediction, golds, expected, normalize):
    assert exact_match(prediction, golds, normalize) == expected


@pytest.mark.parametrize(
    ("one", "other", "squad", "numbers"),
    [
        ("3.14", "314", 1.0, 0.0),
        ("1.5", "15", 1.0, 0.0),
        ("-5", "5", 1.0, 0.0),
        ("1/2", "12", 1.0, 0.0),
        ("9:30", "930", 1.0, 0.0),
        ("3-2", "32", 1.0, 0.0),
        ("10^6", "106", 1.0, 0.0),
        ("1e-6", "1e6", 1.0, 0.0),
        ("5,7", "57", 1.0, 0.0),
        ("5;7", "57", 1.0, 0.0),
        ("<5", ">5", 1.0, 0.0),
        ("C++", "C", 1.0, 0.0),
        ("C#", "C", 1.0, 0.0),
        ("A+", "A-", 1.0, 0.0),
        ("10, 100", "10100", 0.0, 0.0),
        ("5 7", "57", 0.0, 0.0),
        ("10²", "102", 0.0, 0.0),
        ("it’s", "it's", 0.0, 1.0),
        ("“Paris”", "Paris", 0.0, 1.0),
        ("−5", "-5", 0.0, 1.0),
        ("½", "1/2", 0.0, 1.0),
        ("1914–1918", "1914-1918", 0.0, 1.0),
        ("1914 – 1918", "1914-1918", 0.0, 1.0),
        ("３．１４", "3.14", 0.0, 1.0),
        ("Zu\u0308rich", "Zürich", 0.0, 1.0),
        ("¿Qué?", "qué", 0.0, 1.0),
        (".5", "0.5", 0.0, 1.0),
        ("3.50", "3.5", 0.0, 1.0),
        ("3.0", "3", 0.0, 1.0),
        ("007", "7", 0.0, 0.0),  # zeros in front belong to a code
        ("3.10.1", "3.1.1", 0.0, 0.0),
        ("1,000", "1000", 1.0, 1.0),
        ("1,00,000", "100000", 1.0, 1.0),
        ("$-5", "-5", 1.0, 1.0),
        ("-$5.00", "$-5", 0.0, 1.0),
        ("+5", "5", 1.0, 1.0),
        ("50%", "50", 1.0, 1.0),  # the question asked for a share
        ("5.", "5", 1.0, 1.0),
        ("COVID-19", "covid19", 1.0, 1.0),
        ("x = 5", "x=5", 0.0, 1.0),
    ],
)
def test_what_the_two_rules_make_of_numbers_and_marks(one, other, squad, numbers):
    for prediction, gold in ((one, other), (other, one)):
        assert exact_match(prediction, [gold], "squad") == f1(prediction, [gold], "squad") == squad
        assert exact_match(prediction, [gold]) == numbers


def test_normalisation_is_idempotent():
    for prediction, golds, _ in EXACT_MATCH_CASES:
        for text in (prediction, *golds):
            for rule in ("numbers", "squad"):
                assert normalize_answer(normalize_answer(text, rule), rule) == normalize_answer(text, rule)


@given(st.text())
def test_only_a_blank_text_has_an_empty_form(text):
    assert (normalize_answer(text, "squad") == "") == (not text.split())


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
        ("<think> maybe <answer> Vessa </answer>", None),
        ("<think> maybe <answer> Vessa </answer></think>", None),
        ("<think> maybe <answer> a </answer></think><answer> b </answer>", "b"),
        ("<answer> a </answer><think> or <answer> b </answer>", "a"),
        ("<answer> a </answer> I think </think> <answer> b </answer>", "b"),
        ("is it <answer> a </answer></think>", None),
        ('<answer>s = "<think>x</think>"</answer>', 's = "<think>x</think>"'),
        ('<answer>print("</think>")</answer>', 'print("</think>")'),
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
    assert final_answer(AnswerCase(replies=[reply("<think> Port Vessa?</think> Orin")], golds=["x"])) == "Orin"
    assert final_answer(AnswerCase(replies=[reply("<think> Port Vessa")], golds=["x"])) == ""


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
