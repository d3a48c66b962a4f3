"""A report that is checked: one ledger of what it states, one of the contradictions that it names, and its length.

    author of Blue Lantern : Mira Tolen [doc 17]
    author of Blue Lantern : not Orin Vale [doc 4]

The second line names a contradiction: the cited passage says Orin Vale, and a better one overrules it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from turnwise.environments.search_qa.world import Fact
from turnwise_rewards.grounding.claims import Claim, read_section_claims
from turnwise_rewards.grounding.ledger import (
    BAD_CITATIONS,
    BAD_CLAIMS,
    Cited,
    Ledger,
    Limits,
    Stated,
    Support,
    build_ledger,
)
from turnwise_rewards.grounding.passages import Passage
from turnwise_rewards.grounding.words import list_words
from turnwise_rewards.grounding.world.pages import read_page
from turnwise_rewards.grounding.world.reports import hold_claims, name_fact, read_line

NOT = "not "
"""Begins the value of a line that names a contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedReport:
    """What became of one report."""

    claims: Ledger
    """What it states."""
    disputes: Ledger | None
    """Which contradictions it names; `expected` is at least 1. None where nobody knows which there are."""
    num_disputed: int
    """Contradictions among what was asked."""
    num_joined: int
    """Lines that state several facts with the citations of one."""
    num_words: int
    """Words of the whole report."""

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """All ledgers."""
        return (self.claims,) if self.disputes is None else (self.claims, self.disputes)

    @property
    def covered(self) -> float:
        """Clean claims over those expected, from 0 to 1."""
        return min(1.0, count_clean(self.claims) / self.claims.expected)

    @property
    def named(self) -> float | None:
        """Contradictions that are named over those there are, from 0 to 1; None if there are none."""
        if self.disputes is None or not self.num_disputed:
            return None
        return min(1.0, count_clean(self.disputes) / self.num_disputed)

    @property
    def precision(self) -> float:
        """Supported claims and named contradictions over these and everything bad; 0 without any."""
        good = sum(ledger.num_supported for ledger in self.ledgers)
        return good / max(1, good + sum(ledger.num_bad for ledger in self.ledgers))

    @property
    def num_fabricated(self) -> int:
        """Citations of passages that no tool returned."""
        return sum(ledger.count_cited(Cited.FABRICATED) for ledger in self.ledgers)

    def parts(self) -> dict[str, float]:
        """Return the parts of a reward that show the report: shares, and a count for every outcome."""
        both = [*BAD_CITATIONS, *BAD_CLAIMS]
        counts = {
            outcome.value: float(
                sum(
                    ledger.count(outcome) if isinstance(outcome, Stated) else ledger.count_cited(outcome)
                    for ledger in self.ledgers
                )
            )
            for outcome in both
        }
        parts = {
            "covered": self.covered,
            "precision": self.precision,
            "supported": self.claims.recall,
            "unsupported_claims": float(len(self.claims.entries) - self.claims.num_supported),
            "claims": float(sum(len(ledger.entries) for ledger in self.ledgers)),
            "citations": float(sum(ledger.num_citations for ledger in self.ledgers)),
            "no_claims": float(not any(ledger.entries for ledger in self.ledgers)),
            "joined": float(self.num_joined),
            "words": float(self.num_words),
            **counts,
        }
        return parts if self.named is None else {**parts, "named": self.named}


def count_words(sections: Mapping[str, str]) -> int:
    """Return the words of a report with its headings."""
    return sum(len(list_words(text)) for section in sections.items() for text in section)


def count_clean(ledger: Ledger) -> int:
    """Return the supported claims without a bad citation, less the repeated ones; at least 0.

    Stricter than `Ledger.credit`, in which a claim with bad citations counts a part: here a claim that cites everything
    counts nothing, and a report that says everything twice nothing at all."""
    clean = sum(entry.stated is Stated.SUPPORTED and entry.credit == 1 for entry in ledger.entries)
    return max(0, clean - ledger.count(Stated.REPEATED))


def check_report(
    sections: Mapping[str, str],
    passages: Mapping[str, Passage],
    asked: Sequence[Fact],
    truth: Mapping[Fact, str],
    disputed: Sequence[Fact],
    *,
    limits: Limits,
    shuffle: Random | None = None,
) -> CheckedReport:
    """Check a report, its sections by heading, on these facts exactly: `truth` is what the best pages say, `disputed`
    are the facts that a worse page contradicts. With `shuffle` every citation first becomes that of another retrieved
    passage."""
    claims = [claim for _, each in read_section_claims(sections) for claim in each]
    if shuffle is not None:
        claims = [shuffle_citations(claim, list(passages), shuffle) for claim in claims]
    stated = [(claim, read_line(claim.text)) for claim in claims]
    denying = [claim for claim, said in stated if said is not None and said[1].startswith(NOT)]
    stating = [claim for claim, said in stated if said is None or not said[1].startswith(NOT)]
    among = [fact for fact in asked if fact in set(disputed)]

    def answers(claim: Claim) -> tuple[str, str] | None:
        said = read_line(claim.text)
        return (f"{name_fact(said[0])} {said[1]}", said[1]) if said and said[0] in asked else None

    return CheckedReport(
        claims=hold_claims(stating, passages, asked, truth, limits),
        disputes=build_ledger(
            denying,
            passages,
            lambda claim, passage: check_dispute(claim, passage, truth),
            expected=len(among),
            answers=answers,
            limits=limits,
        ),
        num_disputed=len(among),
        num_joined=sum(states_several(said[1]) for _, said in stated if said is not None),
        num_words=count_words(sections),
    )


def check_dispute(claim: Claim, passage: Passage, truth: Mapping[Fact, str]) -> Support:
    """Return whether a passage says what a line says to be overruled.

    YES: one of its lines states the denied value, and the best page says otherwise. NO: it is about the same fact, but
    does not say that, or is right. Otherwise NOT_SUPPORTED."""
    said = read_line(claim.text)
    if said is None:
        return Support.NOT_SUPPORTED
    fact, value = said[0], said[1].removeprefix(NOT)
    values = {page[2] for text in passage.texts if (page := read_page(text)) is not None and page[1] == fact}
    if value in values and fact in truth and truth[fact] != value:
        return Support.YES
    return Support.NO if values else Support.NOT_SUPPORTED


def states_several(value: str) -> bool:
    """Whether a line's value contains a further statement: `A ; mayor of Port Vessa : B`."""
    return any(read_line(part) is not None for part in value.replace(" and ", ";").split(";")[1:])


def shuffle_citations(claim: Claim, retrieved: Sequence[str], random: Random) -> Claim:
    """Return the claim with every citation of a retrieved passage replaced by that of another one."""

    def other(name: str) -> str:
        rest = [each for each in retrieved if each != name]
        return random.choice(rest) if name in retrieved and rest else name

    return replace(claim, citations=tuple(map(other, claim.citations)))
