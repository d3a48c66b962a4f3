"""The evidence ledger: every claim of a report, every passage that it cites, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from turnwise.config.section import Section
from turnwise_rewards.grounding.claims import Claim
from turnwise_rewards.grounding.passages import Passage
from turnwise_rewards.grounding.words import contains_words, list_words, shared_share


class Support(StrEnum):
    """What a passage says about a claim."""

    YES = "yes"
    """It says so, or it follows."""
    NO = "no"
    """It says otherwise, or what it says is overruled."""
    NOT_SUPPORTED = "not_supported"
    """It does not tell."""


class Cited(StrEnum):
    """What became of one citation."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    """The passage was retrieved, and does not tell."""
    CONTRADICTED = "contradicted"
    """The passage says otherwise, or what it says is overruled."""
    FABRICATED = "fabricated"
    """No tool of this episode returned a passage of this id."""
    OWN_TEXT = "own_text"
    """A tool returned what the model had written to it."""
    DUPLICATE = "duplicate"
    """The claim cites the passage a second time."""
    UNREAD = "unread_citation"
    """It stands behind the most passages of a claim that are read."""


class Stated(StrEnum):
    """What became of one claim."""

    SUPPORTED = "supported"
    """At least one citation supports it, and nothing below is the case."""
    UNSUPPORTED = "unsupported"
    """It has citations, and none supports it."""
    UNCITED = "uncited"
    CONTESTED = "contested"
    """Another claim of the report says otherwise; neither counts."""
    REPEATED = "repeated"
    """An earlier claim says the same."""
    UNASKED = "unasked"
    """It answers nothing that was asked, or repeats the question."""
    COPIED = "copied"
    """It has a longer run of a passage's words than a claim may have."""
    UNREAD = "unread"
    """It stands behind the most claims that are read."""


SAME_SHARE = 0.6
"""Share of words from which on two claims in free text count as the same."""
BAD_CITATIONS = tuple(outcome for outcome in Cited if outcome is not Cited.SUPPORTED)
BAD_CLAIMS = (Stated.UNCITED, Stated.CONTESTED, Stated.REPEATED, Stated.UNASKED, Stated.COPIED, Stated.UNREAD)
"""Claims that count against precision by themselves; an unsupported claim does so by its citations."""


class Limits(Section):
    """What of a report is read; 0 sets no limit."""

    max_claims: int = Field(30, ge=0, le=10_000)
    """Most claims; further ones count as bad, unread."""
    max_passages: int = Field(5, ge=0, le=1000)
    """Most different passages that one claim may cite; further citations count as bad, unread."""
    max_copied_words: int = Field(25, ge=0, le=10_000)
    """Longest run of a passage's words that a claim may have: a report is not its sources."""


NO_LIMITS = Limits(max_claims=0, max_passages=0, max_copied_words=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One claim in the ledger."""

    claim: str
    stated: Stated
    citations: tuple[tuple[str, Cited], ...]
    """Id and outcome of every citation, in order."""

    @property
    def credit(self) -> float:
        """What a supported claim counts: 1, or `1 / (1 + bad)` if `bad` of its citations do not support it.

        So citing all of k pages of which one supports the claim is worth no more than citing one of them at random."""
        bad = sum(outcome is not Cited.SUPPORTED for _, outcome in self.citations)
        return 1 / (1 + bad) if self.stated is Stated.SUPPORTED else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All claims of one report."""

    entries: tuple[Entry, ...]
    expected: int
    """Number of supported claims at which recall is 1; at least 1."""

    @property
    def num_supported(self) -> int:
        """Claims that count."""
        return self.count(Stated.SUPPORTED)

    @property
    def num_citations(self) -> int:
        """Citations, each occurrence."""
        return sum(len(entry.citations) for entry in self.entries)

    @property
    def num_bad(self) -> int:
        """What counts against precision: citations that do not support, and claims of `BAD_CLAIMS`."""
        return sum(map(self.count_cited, BAD_CITATIONS)) + sum(map(self.count, BAD_CLAIMS))

    @property
    def recall(self) -> float:
        """Supported claims over those expected, at most 1."""
        return min(1.0, self.num_supported / self.expected)

    @property
    def credit(self) -> float:
        """The claims' credits over those expected, at most 1: recall, less what is padded."""
        return min(1.0, sum(entry.credit for entry in self.entries) / self.expected)

    @property
    def precision(self) -> float:
        """Supported claims over these and everything in `num_bad`; 0 without any.

        Further passages that support a claim count on neither side, so that there is nothing to gain by citing them.
        """
        return self.num_supported / max(1, self.num_supported + self.num_bad)

    @property
    def citation_precision(self) -> float:
        """Citations that support their claim over all citations (ALCE, arXiv 2305.14627, section 3.2, with each passage
        judged by itself); 0 without citations."""
        return self.count_cited(Cited.SUPPORTED) / max(1, self.num_citations)

    def count(self, outcome: Stated) -> int:
        """Return the number of claims with this outcome."""
        return sum(entry.stated is outcome for entry in self.entries)

    def count_cited(self, outcome: Cited) -> int:
        """Return the number of citations with this outcome."""
        return sum(cited is outcome for entry in self.entries for _, cited in entry.citations)

    def parts(self) -> dict[str, float]:
        """Return the parts of a reward that show the ledger; counts are numbers of claims and citations."""
        return {
            "recall": self.recall,
            "credit": self.credit,
            "precision": self.precision,
            "citation_precision": self.citation_precision,
            "claims": float(len(self.entries)),
            "citations": float(self.num_citations),
            **{outcome.value: float(self.count_cited(outcome)) for outcome in BAD_CITATIONS},
            **{outcome.value: float(self.count(outcome)) for outcome in BAD_CLAIMS},
        }

    def show(self) -> str:
        """Return the ledger as a table in Markdown, one row per claim, with a line of sums."""
        rows = ["| claim | outcome | citations |", "|---|---|---|"]
        for entry in self.entries:
            cited = ", ".join(f"{name} {outcome}" for name, outcome in entry.citations) or "none"
            rows.append(f"| {_cell(entry.claim)} | {entry.stated} | {_cell(cited)} |")
        return "\n".join(
            [
                *rows,
                "",
                f"{self.num_supported} of {self.expected} supported (recall {self.recall:.2f}, credit "
                f"{self.credit:.2f}), {self.num_bad} bad "
                f"(precision {self.precision:.2f}), {self.count_cited(Cited.FABRICATED)} fabricated",
            ]
        )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


Supports = Callable[[Claim, Passage], Support]
"""What a passage says about a claim."""
Answers = Callable[[Claim], tuple[str, str] | None]
"""Which question a claim answers and what it says; None if it answers none that was asked."""


def build_ledger(
    claims: Sequence[Claim],
    passages: Mapping[str, Passage],
    supports: Supports,
    *,
    expected: int,
    answers: Answers | None = None,
    question: str = "",
    limits: Limits | None = None,
) -> Ledger:
    """Hold every claim against the passages that it cites. `supports` is asked about retrieved passages only.

    With `answers`, two claims that answer the same question differently contest each other, equal answers repeat each
    other, and claims that answer none are unasked. Without it, a claim repeats an earlier one if they share at least
    60% of their words, and is unasked if it stands word by word in `question`. `limits` None sets none.
    """
    limits = limits or NO_LIMITS
    told = [None if answers is None else answers(claim) for claim in claims]
    contested = _find_contested(told)
    asked_words = list_words(question)
    entries: list[Entry] = []
    for at, claim in enumerate(claims):
        citations = _judge_citations(claim, passages, supports, limits)
        if answers is None:
            unasked = contains_words(asked_words, list_words(claim.text))
            repeated = any(_are_alike(claim, past) for past in claims[:at])
        else:
            unasked, repeated = told[at] is None, told[at] in told[:at]
        faults = {
            Stated.UNASKED: unasked,
            Stated.CONTESTED: at in contested,
            Stated.REPEATED: repeated,
            Stated.UNREAD: 0 < limits.max_claims <= at,
            Stated.COPIED: limits.max_copied_words > 0 and _copies(claim, passages, limits.max_copied_words),
            Stated.UNCITED: not citations,
            Stated.UNSUPPORTED: all(outcome is not Cited.SUPPORTED for _, outcome in citations),
        }
        stated = next((fault for fault, is_so in faults.items() if is_so), Stated.SUPPORTED)
        entries.append(Entry(claim=claim.text, stated=stated, citations=citations))
    return Ledger(entries=tuple(entries), expected=max(1, expected))


def _judge_citations(
    claim: Claim, passages: Mapping[str, Passage], supports: Supports, limits: Limits
) -> tuple[tuple[str, Cited], ...]:
    outcomes: list[tuple[str, Cited]] = []
    for at, name in enumerate(claim.citations):
        passage = passages.get(name)
        if passage is None:
            outcome = Cited.FABRICATED
        elif name in claim.citations[:at]:
            outcome = Cited.DUPLICATE
        elif passage.is_own:
            outcome = Cited.OWN_TEXT
        elif 0 < limits.max_passages <= len(set(claim.citations[:at])):
            outcome = Cited.UNREAD
        else:
            outcome = _OUTCOMES[supports(claim, passage)]
        outcomes.append((name, outcome))
    return tuple(outcomes)


_OUTCOMES = {Support.YES: Cited.SUPPORTED, Support.NO: Cited.CONTRADICTED, Support.NOT_SUPPORTED: Cited.UNSUPPORTED}


def _find_contested(told: Sequence[tuple[str, str] | None]) -> set[int]:
    """Return the places of the claims whose question has another answer too."""
    says: dict[str, set[str]] = {}
    for question, answer in filter(None, told):
        says.setdefault(question, set()).add(answer)
    return {at for at, each in enumerate(told) if each is not None and len(says[each[0]]) > 1}


def _are_alike(claim: Claim, past: Claim) -> bool:
    return shared_share(list_words(claim.text), list_words(past.text)) >= SAME_SHARE


def _copies(claim: Claim, passages: Mapping[str, Passage], max_words: int) -> bool:
    words = list_words(claim.text)
    runs = [words[at : at + max_words + 1] for at in range(len(words) - max_words)]
    texts = [list_words(text) for passage in passages.values() for text in passage.texts] if runs else []
    return any(contains_words(text, run) for text in texts for run in runs)
