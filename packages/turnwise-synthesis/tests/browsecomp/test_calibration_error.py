"""Calibration error as published and without its faults; how confidences are read."""

from __future__ import annotations

import math

import pytest

from turnwise.core.verdicts import Form, Mark
from turnwise.questions.replies import read_reply
from turnwise_synthesis.browsecomp.calibration import (
    Outcome,
    bin_by_confidence,
    compute_calibration_error,
    read_confidence,
)


def test_bins_and_error_by_hand() -> None:
    # 5 answers in bins of 2: the last bin takes the rest.
    pairs = [(0.9, True), (0.1, False), (0.3, True), (0.8, False), (0.7, True)]
    first, last = bin_by_confidence(pairs, 2)
    assert (first.count, first.confidence, first.accuracy) == (2, 0.2, 0.5)  # .1 wrong, .3 right
    assert last.count == 3
    assert math.isclose(last.confidence, 0.8)  # .7 right, .8 wrong, .9 right
    assert math.isclose(last.accuracy, 2 / 3)
    # sqrt(2/5 * .3^2 + 3/5 * (.8 - 2/3)^2) = sqrt(.036 + .0106667)
    assert math.isclose(compute_calibration_error([first, last]), math.sqrt(0.036 + 0.6 * (0.8 - 2 / 3) ** 2))
    assert math.isclose(compute_calibration_error([first, last], as_published=True), math.sqrt(0.036))


def test_the_published_loop_does_not_see_the_surest_answers() -> None:
    # 250 answers: 100 unsure and calibrated, 150 sure of themselves and all wrong.
    pairs = [(0.5, number % 2 == 0) for number in range(100)] + [(1.0, False)] * 150
    bins = bin_by_confidence(pairs)
    assert [each.count for each in bins] == [100, 150]
    assert compute_calibration_error(bins, as_published=True) == 0.0
    assert math.isclose(compute_calibration_error(bins), math.sqrt(0.6))


def test_fewer_answers_than_a_bin_are_one_bin() -> None:
    bins = bin_by_confidence([(1.0, True), (0.5, False)], 100)
    assert [each.count for each in bins] == [2]
    assert compute_calibration_error(bins) == 0.25  # .75 stated, .5 right
    assert compute_calibration_error(bins, as_published=True) == 0.25


@pytest.mark.parametrize(("pairs", "size"), [([], 10), ([(1.5, True)], 10), ([(0.5, True)], 0)])
def test_what_cannot_be_binned_is_refused(pairs: list[tuple[float, bool]], size: int) -> None:
    with pytest.raises(ValueError, match=r"cannot be compared|not between"):
        bin_by_confidence(pairs, size)


@pytest.mark.parametrize(
    ("reply", "outcome", "value"),
    [
        ("Exact Answer: X\nConfidence: 85%", Outcome.STATED, 0.85),
        ("**Confidence:** 85%", Outcome.STATED, 0.85),
        ("confidence: 7", Outcome.STATED, 0.07),
        ("Confidence: 0.5%", Outcome.STATED, 0.005),
        ("Confidence: 100 %.", Outcome.STATED, 1.0),
        ("Confidence: 85%\nConfidence: 85%", Outcome.STATED, 0.85),
        ("Confidence: 85%\nConfidence: 20%", Outcome.SEVERAL, None),
        ("Confidence: high", Outcome.NO_NUMBER, None),
        ("Confidence: 80-90%", Outcome.NO_NUMBER, None),
        ("Confidence: 7/10", Outcome.NO_NUMBER, None),
        ("Confidence: 850%", Outcome.OUTSIDE, None),
        ("X", Outcome.MISSING, None),
        ("My confidence: 85%", Outcome.MISSING, None),
        ("<think>\nConfidence: 85%\n</think> X", Outcome.MISSING, None),
        ("", Outcome.MISSING, None),
    ],
)
def test_confidences_of_replies(reply: str, outcome: Outcome, value: float | None) -> None:
    stated = read_confidence(reply)
    assert stated.outcome is outcome
    assert stated.value is None if value is None else math.isclose(stated.value or -1, value)


@pytest.mark.parametrize(("word", "score"), [("yes", 1.0), ("no", 0.0)])
def test_a_reply_in_the_form_of_the_published_grader_is_read_by_its_verdict(word: str, score: float) -> None:
    reply = f"extracted_final_answer: X\nreasoning: correct: no, at first sight\ncorrect: {word}\nconfidence: 80%"
    form = Form(marks=(Mark(name="correct", words=(("yes", 1.0), ("no", 0.0))),))
    assert read_reply(reply, form)[0] == score
