"""Exact filters of what a writer wrote: no judge, only the item's passages and gold answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from turnwise.rewards.normal_form import normalize_answer
from turnwise_synthesis.documents.items import Item
from turnwise_synthesis.documents.ledger import Reason
from turnwise_synthesis.documents.writers import Draft

MAX_REPEATS = 3
"""Most times that four words in a row may come in one text."""
MIN_LEAK = 3
"""Fewest characters of an answer whose presence counts as a leak: "no" or "7" occur by chance."""
_REFUSAL = re.compile(
    r"\s*(?:i(?:'m| am) sorry|sorry,|i (?:can(?:no|')t|am unable to|am not able to)|as an ai\b)", re.IGNORECASE
)


def check_draft(draft: Draft) -> Reason | None:
    """Return what is wrong with a draft of any kind; None if nothing is."""
    if draft.refusal or _REFUSAL.match(draft.text):
        return "refuses"
    if not draft.text.strip():
        return "empty"
    if repeats(draft.text):
        return "repeats"
    if draft.is_cut:
        return "cut"
    return "off_format" if not draft.action.strip() else None


def repeats(text: str) -> bool:
    """Whether four words in a row come more than `MAX_REPEATS` times, or one word more than twice as often in a row."""
    words = text.lower().split()
    grams = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    if grams and max(grams.values()) > MAX_REPEATS:
        return True
    run = longest = 1
    for before, word in pairwise(words):
        run = run + 1 if word == before else 1
        longest = max(longest, run)
    return longest > 2 * MAX_REPEATS


def contains(text: str, phrase: str) -> bool:
    """Whether a text has a phrase as whole words, both in normal form."""
    words = normalize_answer(phrase)
    return bool(words) and f" {words} " in f" {normalize_answer(text)} "


def leaks(text: str, question: str, answers: Sequence[str]) -> bool:
    """Whether a text has an answer that its question does not have already."""
    return any(len(each) >= MIN_LEAK and contains(text, each) and not contains(question, each) for each in answers)


def check_plan(draft: Draft, item: Item) -> Reason | None:
    """Return why a plan is dropped: its query has the answer, or finds none of the evidence; None if it is kept."""
    if problem := check_draft(draft):
        return problem
    if leaks(f"{draft.thought} {draft.action}", item.question, item.answers):
        return "leaks_answer"
    found = {passage.id for passage in item.search(draft.action)}
    return None if found & {passage.id for passage in item.evidence} else "misses_evidence"


def check_reasoning(draft: Draft, item: Item) -> Reason | None:
    """Return why a reasoning is dropped: it does not end in a gold answer; None if it is kept."""
    return check_draft(draft) or (None if find_answer(draft.action, item.answers) else "wrong_answer")


def find_answer(action: str, answers: Sequence[str]) -> str | None:
    """Return the answer that an action is, or ends in ("It is the Louvre." ends in Louvre); None for any other."""
    said = f" {normalize_answer(action)}"
    return next((each for each in answers if said.endswith(f" {normalize_answer(each)}")), None)
