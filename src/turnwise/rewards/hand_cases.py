"""Graders tried on hand cases: answers whose truth is known by construction (`answer_pairs`, `math_pairs`)."""

from __future__ import annotations

from collections.abc import Callable

from turnwise.core.errors import RewardError
from turnwise.core.protocols import GradedCase
from turnwise.core.types import text_message
from turnwise.rewards import answer_pairs, math_pairs
from turnwise.rewards.answer_pairs import Pair, draw_pairs
from turnwise.rewards.answers import AnswerCase, AnswerReward
from turnwise.rewards.math_answer import parse_integer
from turnwise.rewards.normal_form import Normalize

SHORT_CASES = 460
"""Ten of each of the 46 kinds of short answers."""
MATH_CASES = 156
"""Two of each of the 78 kinds of mathematical answers."""


def grade_short_answers(reward: AnswerReward, normalize: Normalize) -> list[GradedCase]:
    """Grade the reward's own cases (`must_pass`, `must_fail`) and `SHORT_CASES` pairs of short answers."""
    own = [
        GradedCase(kind=f"{name} of the reward", is_right=is_right, is_accepted=reward.compute(case) >= 1.0)
        for name, is_right, cases in (("must_pass", True, reward.must_pass), ("must_fail", False, reward.must_fail))
        for case in cases
    ]

    def accept(pair: Pair) -> bool:
        # The thought in front makes the reply well formed, so that a reward for format refuses answers alone.
        reply = text_message("assistant", f"<answer>{pair.answer}</answer>", reasoning="It is known.")
        return reward.compute(AnswerCase(replies=[reply], golds=pair.golds, normalize=normalize)) >= 1.0

    return own + _grade(draw_pairs((answer_pairs.RIGHT, answer_pairs.WRONG), SHORT_CASES, 0), accept)


def grade_math_answers(verify: Callable[[str, tuple[str, ...]], bool]) -> list[GradedCase]:
    """Grade `MATH_CASES` pairs of mathematical answers; a comparison that is given up counts as refused."""

    def accept(pair: Pair) -> bool:
        try:
            return verify(pair.answer, pair.golds)
        except RewardError:
            return False

    return _grade(draw_pairs((math_pairs.RIGHT, math_pairs.WRONG), MATH_CASES, 0), accept)


def grade_whole_numbers() -> list[GradedCase]:
    """Grade by `parse_integer` those of the mathematical pairs whose gold answer is a whole number."""
    pairs = draw_pairs((math_pairs.RIGHT, math_pairs.WRONG), MATH_CASES * 4, 0)
    whole = [pair for pair in pairs if parse_integer(pair.golds[0]) is not None]
    return _grade(whole, lambda pair: parse_integer(pair.answer) == parse_integer(pair.golds[0]))


def _grade(pairs: list[Pair], accept: Callable[[Pair], bool]) -> list[GradedCase]:
    return [GradedCase(kind=pair.kind, is_right=pair.is_right, is_accepted=accept(pair)) for pair in pairs]
