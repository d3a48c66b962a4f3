"""Reads the answer of every attempt, and counts equal ones. No label and no environment is asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from turnwise.config.section import Section
from turnwise.core.paths import first_path
from turnwise.core.types import Invalid, Message, Scored, Trajectory, TrajectoryGroup
from turnwise.rewards.answers import AnswerCase, extract_answer, final_answer
from turnwise.rewards.math_answer import final_boxed, parse_integer
from turnwise.rewards.math_spelling import spell
from turnwise.rewards.normal_form import normalize_answer

Read = Literal["auto", "boxed", "tag", "reply"]
"""Where an attempt's answer is."""
Compare = Literal["numbers", "squad", "math"]
"""Which answers are the same."""


class AnswerOptions(Section):
    """How answers are read and compared."""

    read: Read = "auto"
    r"""Which text of the last reply is the answer: the last \\boxed{} ("boxed"), the last <answer> tag ("tag"), the
    one of these that it has ("auto"), or, of a reply without a tag that ended the episode, all of it ("reply")."""
    compare: Compare = "numbers"
    """Answers are the same if their forms are: "numbers" and "squad" are those of the short answers (docs/graders.md),
    "math" unifies LaTeX's spellings and does not compute. Whole numbers are compared as numbers first."""


def read_answer(trajectory: Trajectory, options: AnswerOptions) -> str | None:
    """Return the normal form of the answer of an attempt; None if it gives none.

    Read is the last reply of the first conversation; one that calls a tool has no answer."""
    replies = [turn.message for turn in first_path(trajectory).turns if turn.conversation == 0]
    text = _find_answer(replies[-1:], trajectory, options.read) if replies else None
    return None if text is None else to_form(text, options.compare)


def _find_answer(last: Sequence[Message], trajectory: Trajectory, read: Read) -> str | None:
    if last[0].tool_calls:
        return None
    if read == "reply":
        return final_answer(AnswerCase(replies=last, golds=(), stop=trajectory.stop))
    boxed = final_boxed(last) if read != "tag" else None
    return extract_answer(last[0].text) if boxed is None and read != "boxed" else boxed


def to_form(answer: str, compare: Compare) -> str | None:
    """Return what equal answers share; None for an answer without content."""
    number = parse_integer(answer)
    if number is not None:
        return str(number)
    if compare == "math":
        return "".join(spell(answer).split()) or None
    return normalize_answer(answer, compare) or None


def read_voters(group: TrajectoryGroup, options: AnswerOptions) -> list[str | None]:
    """Return the answer of every member that the environment could score, in order: only these vote."""
    return [read_answer(t, options) for t in group.trajectories if isinstance(t.reward, Scored)]


def spread(group: TrajectoryGroup, values: Sequence[float | Invalid]) -> list[float | Invalid]:
    """Return the values of the voters at the places of their members; an Invalid member keeps its reason."""
    given = iter(values)
    return [next(given) if isinstance(t.reward, Scored) else t.reward for t in group.trajectories]


def count_answers(answers: Sequence[str | None]) -> Counter[str]:
    """Return how many attempts gave each answer."""
    return Counter(answer for answer in answers if answer is not None)


def compute_cluster_entropy(answers: Sequence[str | None]) -> float:
    """Return the entropy of the clusters of equal answers, in nats, with the attempts' shares as probabilities (the
    discrete semantic entropy of arXiv 2302.09664). An attempt without an answer is a cluster of its own. 0 for no
    attempt."""
    sizes = [*count_answers(answers).values(), *(1 for answer in answers if answer is None)]
    return math.fsum(-size / len(answers) * math.log(size / len(answers)) for size in sizes)
