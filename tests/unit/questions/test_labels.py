"""Labelled questions: what a row may be, and Cohen's kappa."""

import re
from typing import Any

import pytest

from turnwise.core.errors import DataError
from turnwise.core.verdicts import Verdict
from turnwise.questions.labels import compute_agreement, name_answer, read_labelled

TEXT = {"text": "Paris", "label": 1}


def test_kappa_is_the_agreement_beyond_chance() -> None:
    # 10 pairs: 4 good-good, 3 bad-bad, 2 good-bad, 1 bad-good. Equal 0.7; chance 0.6 * 0.5 + 0.4 * 0.5 = 0.5.
    labels = ["good"] * 6 + ["bad"] * 4
    said = ["good"] * 4 + ["bad"] * 2 + ["bad"] * 3 + ["good"]
    found = compute_agreement(labels, said)
    assert (found.count, found.equal) == (10, 0.7)
    assert found.kappa == pytest.approx(0.4)
    # 1.96 sqrt(0.7 * 0.3 / 10) / 0.5 = 0.568
    assert [found.low, found.high] == pytest.approx([-0.168, 0.968], abs=1e-3)


@pytest.mark.parametrize(
    ("labels", "said", "kappa"),
    [
        (["good", "bad"], ["good", "bad"], 1.0),
        (["good", "bad"], ["bad", "good"], -1.0),
        (["good", "good", "bad"], ["good"] * 3, 0.0),
        (["good", "good"], ["good", "good"], 0.0),
    ],
)
def test_a_judge_that_always_says_the_same_agrees_by_chance(labels: list[str], said: list[str], kappa: float) -> None:
    assert compute_agreement(labels, said).kappa == kappa


def test_rows_ask_what_their_fields_say() -> None:
    rated = read_labelled({"text": "a poem", "rubric": "Does it rhyme?", "label": 0.25})
    assert (rated.question.rubric, rated.label) == ("Does it rhyme?", "bad")
    matched = read_labelled({"text": "Paris", "reference": "Rome", "label": "incorrect"})
    assert (matched.question.form.marks[0].name, matched.label) == ("verdict", "incorrect")
    compared = read_labelled({"text": "which?", "answers": ["a", "b"], "label": "tie"})
    assert (compared.question.answers, compared.label) == (("a", "b"), "tie")
    met = read_labelled({"messages": [{"role": "user", "content": "x"}], "criteria": {"a": 1}, "label": 1})
    assert met.label == "yes"


def test_a_verdict_is_named_as_labels_are() -> None:
    matched = read_labelled({"text": "Paris", "reference": "Rome", "label": "incorrect"}).question.form
    assert name_answer(Verdict(score=0.0, marks=(("verdict", "not_attempted"),)), matched) == "not_attempted"
    assert name_answer(None, matched) == "none"
    assert name_answer(Verdict(score=0.5), read_labelled(TEXT).question.form) == "good"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "x"}, "field 'label' is missing"),
        ({"label": 1}, "write either field 'text' or field 'messages'"),
        ({**TEXT, "messages": []}, "write either field 'text' or field 'messages'"),
        ({"messages": [], "label": 1}, "field 'messages' has to be a list of messages"),
        ({"messages": [{"role": "me", "content": "x"}], "label": 1}, "field 'messages'[0] needs a role"),
        ({**TEXT, "text": 3}, "field 'text' is 3; write a text"),
        ({**TEXT, "label": 2}, "field 'label' is 2; write a number from 0 to 1"),
        ({**TEXT, "label": "good"}, "field 'label' is 'good'; write a number"),
        ({**TEXT, "score": 1}, "field 'score' is none of text, messages"),
        ({**TEXT, "reference": "x"}, "field 'label' is 1; write one of correct, incorrect"),
        ({**TEXT, "answers": ["x"]}, "field 'answers' has to be two texts"),
        ({**TEXT, "reference": "x", "answers": []}, "ask different questions; keep one"),
        ({**TEXT, "criteria": {"x": -1}}, "field 'criteria': criteria need at least one weight above 0"),
        ({**TEXT, "criteria": ["x"]}, "field 'criteria' has to be an object"),
    ],
)
def test_a_wrong_row_is_refused_by_its_field(row: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)):
        read_labelled(row)
