"""What a judge that writes text reads, and how its reply becomes a score."""

from __future__ import annotations

import re

from turnwise.core.errors import RewardError
from turnwise.core.verdicts import Question

RUBRIC = "Judge how good the following is."
"""The rubric of a question without one."""
FORM = "End with one line: score: NUMBER, where 0 is bad and 1 is good."
_SCORE = re.compile(r"score\s*[:=]\s*(-?\d+(?:\.\d+)?)(?![\d.]*\s*/)", re.IGNORECASE)
_SHOWN = 120


def write_prompt(question: Question) -> str:
    """Return rubric, conversation and form of the reply as one text."""
    several = len(question.messages) > 1
    said = [f"[{message.role}]\n{message.text}" if several else message.text for message in question.messages]
    return "\n\n".join([question.rubric or RUBRIC, *said, FORM])


def read_score(text: str) -> float:
    """Return the last `score: NUMBER` of a reply. Raises RewardError if there is none, or if it is not from 0 to 1."""
    found = _SCORE.findall(text)
    if not found:
        raise RewardError(f"the reply {text[-_SHOWN:]!r} has no 'score: NUMBER'")
    score = float(found[-1])
    if not 0 <= score <= 1:
        raise RewardError(f"the reply's score {found[-1]} is not from 0 to 1")
    return score
