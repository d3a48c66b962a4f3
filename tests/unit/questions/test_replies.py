"""Replies of judges: which are verdicts, and which are none."""

import json
import re

import pytest

from turnwise.core.errors import ConfigError, RewardError
from turnwise.core.verdicts import RATING, Form, Mark
from turnwise.questions.forms import argument, criteria, match, pair, ranking
from turnwise.questions.replies import build_regex, build_schema, read_reply


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("score: 0.5", 0.5),
        ("I say:\nscore: 0.9.\nScore = 1", 1.0),
        ("- score: 0.25", 0.25),
        ('It says "score: 1".\n{"score": 0.25}', 0.25),
        ('The text has {"score": 1}, which is a trick.\nscore: 0.25', 0.25),
        ('score: 0.25\nThe text has {"score": 1}', 0.25),
        ("**score: 0**", 0.0),
        ("**Score:** 0.7", 0.7),
        ("score: 0.5 (fair)", 0.5),
        ("score: 0.5, but hardly", 0.5),
        ('{"reason": "score: 1", "score": 0.25}', 0.25),
        ('```json\n{"score": 0.25}\n```', 0.25),
        ("<think>score: 1</think>score: 0", 0.0),
    ],
)
def test_the_last_score_of_a_reply_counts(text: str, score: float) -> None:
    assert read_reply(text, RATING)[0] == score


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no line 'score: NUMBER'"),
        ('The text says "score: 1", which is no verdict of mine', "has no line 'score: NUMBER'"),
        ("> score: 1", "has no line"),
        ('{"reason": "score: 1"}', "the reply JSON with score None has no line"),
        ('{"score": [1]}', "has no line"),
        ('{"score": "high"}', "'high' is not one number"),
        ("good", "'good' has no"),
        ("score: 7/10", "'7/10' is not one number"),
        ("score: 1 out of 10", "is not one number"),
        ("score: 80%", "is not one number"),
        ("score: 0,5", "is not one number"),
        ("score: nan", "is not one number"),
        ("score: .5", "is not one number"),
        ("score: 1e-3", "is not one number"),
        ("score: 0.5\nscore: maybe", "'maybe' is not one number"),
        ("score: NUMBER from 0 to 1", "is not one number"),
        ("score: 7", "7 is not from 0 to 1"),
        ("score: -0.5", "-0.5 is not from 0 to 1"),
        ("underscore: 1", "has no"),
        ("<think>score: 1", "ends before the judge has ended its thoughts"),
        ("<think>score: 1</think>", "has no"),
    ],
)
def test_a_reply_without_a_number_from_0_to_1_is_no_verdict(text: str, words: str) -> None:
    with pytest.raises(RewardError, match=re.escape(words)):
        read_reply(text, RATING)


@pytest.mark.parametrize(
    ("text", "score", "word"),
    [
        ("It is right.\nverdict: correct", 1.0, "correct"),
        ("Verdict: **Incorrect**.", 0.0, "incorrect"),
        ('{"verdict": "not_attempted"}', 0.0, "not_attempted"),
        ("verdict: correct\nNo, wait.\nverdict: incorrect, as it names two", 0.0, "incorrect"),
    ],
)
def test_a_match_is_one_of_its_words(text: str, score: float, word: str) -> None:
    assert read_reply(text, match("x")) == (score, (("verdict", word),))


@pytest.mark.parametrize(
    "text",
    [
        "verdict: A",
        "verdict: not correct",
        "verdict: correct or incorrect or not_attempted",
        "verdict: correctish",
        "yes",
    ],
)
def test_an_unclear_word_is_no_verdict(text: str) -> None:
    with pytest.raises(RewardError, match="verdict"):
        read_reply(text, match("x"))


def test_criteria_count_with_their_weights_and_pitfalls_against_them() -> None:
    form = criteria({"right": 2, "cites": 1, "lies": -1})
    lines = "criterion 1: {}\ncriterion 2: {}\ncriterion 3: {}"
    scores = [
        read_reply(lines.format(*each.split()), form)[0]
        for each in ("yes yes no", "yes no no", "yes no yes", "no no yes")
    ]
    assert scores == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]  # of 3: 3, 2, 2 - 1, and -1 is kept at 0
    with pytest.raises(RewardError, match="has no line 'criterion 2: yes or no'"):
        read_reply("criterion 1: yes\ncriterion 3: no", form)
    as_json = '{"criterion 1": true, "criterion 2": false, "criterion 3": "no"}'
    assert read_reply(as_json, form)[0] == pytest.approx(2 / 3)
    for unclear in ('"false"', "null", "1"):
        with pytest.raises(RewardError, match="criterion 1"):
            read_reply(as_json.replace("true", unclear), form)
    with pytest.raises(ConfigError, match="at least one weight above 0"):
        criteria({"lies": -1})


def test_scores_of_a_ranking_go_by_their_number_and_none_may_be_missing() -> None:
    score, marks = read_reply("answer 2: 0.25\nanswer 1: 0.75", ranking(2))
    assert (score, dict(marks)) == (0.5, {"answer 1": "0.75", "answer 2": "0.25"})
    with pytest.raises(RewardError, match="has no line 'answer 3: NUMBER'"):
        read_reply("answer 1: 0.5\nanswer 2: 0.5\nanswer 33: 0.5", ranking(3))


def test_an_argument_is_any_text() -> None:
    assert read_reply("because", argument("for it")) == (1.0, ())
    with pytest.raises(RewardError, match="the reply is empty"):
        read_reply(" \n", argument("for it"))


FORMS = [RATING, match("x"), pair(), ranking(3), criteria({"a": 1, "b": 1}), Form(marks=(Mark(name="a b (c)"),))]


@pytest.mark.parametrize("form", FORMS)
def test_what_the_grammar_allows_is_a_verdict(form: Form) -> None:
    lines = "\n".join(f"{mark.name}: {mark.words[-1][0] if mark.words else '0.25'}" for mark in form.marks)
    assert re.fullmatch(build_regex(form), lines)
    assert not re.fullmatch(build_regex(form), f"{lines}\n")
    given = dict(line.split(": ") for line in lines.split("\n"))
    assert set(build_schema(form)["required"]) == {"reason", *given}
    as_json = json.dumps({"reason": "x", **{k: float(v) if v == "0.25" else v for k, v in given.items()}})
    assert read_reply(lines, form) == read_reply(as_json, form)
