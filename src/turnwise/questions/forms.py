"""Forms of questions: what a verdict states, and how that becomes a score. Any `Form` is one; these are the usual."""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.core.errors import ConfigError
from turnwise.core.verdicts import Form, Mark

MATCH = (("correct", 1.0), ("incorrect", 0.0), ("not_attempted", 0.0))
"""What an answer may be against a reference, and the score of each."""
PAIR = (("first", 1.0), ("second", 0.0), ("tie", 0.5))
"""Which of two answers may be better, and the score of each for the first."""
_YES = (("yes", 1.0), ("no", 0.0))


def criteria(weights: Mapping[str, float]) -> Form:
    """Each criterion is met or not, and counts with its weight: 1 for all above 0 and none below 0 (explicit rubrics,
    arXiv 2507.17746, equation 1, kept from falling below 0 where pitfalls have weights below 0).

    Raises ConfigError if no weight is above 0: there would be nothing to reach."""
    if not any(weight > 0 for weight in weights.values()):
        raise ConfigError("criteria need at least one weight above 0; one below 0 is for what should not be the case")
    told = [f"{number}. {text}" for number, text in enumerate(weights, 1)]
    marks = (
        Mark(name=f"criterion {number}", words=_YES, weight=weight) for number, weight in enumerate(weights.values(), 1)
    )
    task = "Say for every criterion whether it is met:"
    return Form(marks=tuple(marks), task="\n".join([task, *told]))


def match(reference: str) -> Form:
    """The text is correct, incorrect or no attempt, by the reference answer; only correct counts."""
    return Form(
        marks=(Mark(name="verdict", words=MATCH),),
        task="Compare the final answer in it with the reference answer. It is correct if it means the same and "
        "contradicts it nowhere, not_attempted if it gives no final answer, and otherwise incorrect.\n"
        f"Reference answer: {reference}",
    )


def pair() -> Form:
    """The first of two answers is better, or the second, or neither. `asking.compare` asks in both orders."""
    return Form(
        marks=(Mark(name="better", words=PAIR),),
        task="Say which of the two answers is better, or that it is a tie. Neither the order of the answers nor their "
        "length counts.",
    )


def ranking(count: int) -> Form:
    """Every one of `count` answers gets a score relative to the others. `asking.rank` asks and returns them; the score
    is their mean."""
    return Form(
        marks=tuple(Mark(name=f"answer {number}") for number in range(1, count + 1)),
        task="Give every answer a score from 0 to 1 by comparing them. One that reaches the goal scores far above one "
        "that does not; among those that do, the more direct is better; a small difference is a small gap; partial "
        "success counts for something.",
    )


def argument(side: str) -> Form:
    """Any text is the verdict: the case for `side`."""
    return Form(marks=(), task=f"Write the strongest honest case {side}. Quote what supports it, word for word.")
