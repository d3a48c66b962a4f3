"""How a report states a fact, and what a page says about such a statement. Exact."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from turnwise.core.types import Task
from turnwise.environments.search_qa.world import RELATIONS, Fact
from turnwise_rewards.grounding.claims import Claim, read_claims
from turnwise_rewards.grounding.ledger import NO_LIMITS, Ledger, Limits, Support, build_ledger
from turnwise_rewards.grounding.passages import Passage
from turnwise_rewards.grounding.world.pages import read_page

_CLAIM = re.compile(rf"(?:claim\s*:\s*)?(?P<relation>{'|'.join(RELATIONS)}) of (?P<subject>.+?) [:=] (?P<value>.+)")


def asked_facts(task: Task) -> list[Fact]:
    """Return the facts that a task asks for."""
    return [(relation, subject) for relation, subject in task.payload["asked"]]


def name_fact(fact: Fact) -> str:
    """Write what is asked: `author of Blue Lantern`."""
    return f"{fact[0]} of {fact[1]}"


def write_line(fact: Fact, value: str, ids: Sequence[str]) -> str:
    """Write a line of a report: `author of Blue Lantern : Mira Tolen [doc 17]`."""
    return " ".join([name_fact(fact), ":", value, *(f"[doc {name}]" for name in ids)])


def write_report(lines: Sequence[str]) -> str:
    """Join the lines of a report. All but the first are indented by a space, so that the same words are the same
    tokens wherever they stand."""
    return "\n ".join(lines)


def read_line(text: str) -> tuple[Fact, str] | None:
    """Return the fact and the value that a claim states; None if it is not of the form of `write_line`."""
    match = _CLAIM.fullmatch(text.strip())
    return match and ((match["relation"], match["subject"].strip()), match["value"].strip())


def check_claim(claim: Claim, passage: Passage, truth: Mapping[Fact, str]) -> Support:
    """Return whether a passage entails a claim.

    YES: one of its lines states the claim, and no better page of the world says otherwise. NO: a line is about the same
    fact, but says otherwise or is overruled. Otherwise NOT_SUPPORTED.
    """
    stated = read_line(claim.text)
    if stated is None:
        return Support.NOT_SUPPORTED
    fact, value = stated
    said = {page[2] for text in passage.texts if (page := read_page(text)) is not None and page[1] == fact}
    if value in said and truth.get(fact) == value:
        return Support.YES
    return Support.NO if said else Support.NOT_SUPPORTED


def write_ledger(
    report: str, passages: Mapping[str, Passage], asked: Sequence[Fact], truth: Mapping[Fact, str]
) -> Ledger:
    """Return the ledger of a report on these facts, given what its episode was shown and what the best pages say."""
    return hold_claims(read_claims(report), passages, asked, truth)


def hold_claims(
    claims: Sequence[Claim],
    passages: Mapping[str, Passage],
    asked: Sequence[Fact],
    truth: Mapping[Fact, str],
    limits: Limits = NO_LIMITS,
) -> Ledger:
    """Return the ledger of claims on these facts."""

    def answers(claim: Claim) -> tuple[str, str] | None:
        stated = read_line(claim.text)
        return (name_fact(stated[0]), stated[1]) if stated and stated[0] in asked else None

    return build_ledger(
        claims,
        passages,
        lambda claim, passage: check_claim(claim, passage, truth),
        expected=len(asked),
        answers=answers,
        limits=limits,
    )
