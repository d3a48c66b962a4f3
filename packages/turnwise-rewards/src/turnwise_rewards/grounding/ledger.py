"""The evidence ledger: every claim of a report, every passage that it cites, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
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
    credit: float = 0.0
    """What a supported claim counts: 1, or `1 / (1 + bad)` if `bad` citations of it and of the claims that say the same
    do not support it; 0 of any other claim.

    So citing all of k pages of which one supports the claim, at once or in k claims, is worth no more than citing one
    of them at random."""


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

    With `answers`, two claims that answer the same question differently contest each other, equal answers say the same,
    and claims that answer none are unasked. Without it, claims that share at least 60% of their words say the same, and
    what says the same as the same claim too; a claim that stands word by word in `question` is unasked. Of the claims
    that say the same the first supported one counts, or else the first is named for its own fault, and the others are
    repeated. `limits` None sets none.
    """
    limits = limits or NO_LIMITS
    told = [None if answers is None else answers(claim) for claim in claims]
    contested = _find_contested(told)
    words = [list_words(claim.text) for claim in claims]
    asked = list_words(question)
    texts = [list_words(text) for passage in passages.values() for text in passage.texts]
    cited = [_judge_citations(claim, passages, supports, limits) for claim in claims]
    faults: list[Stated] = []
    for at, claim in enumerate(claims):
        has = {
            Stated.UNREAD: 0 < limits.max_claims <= at,
            Stated.COPIED: _copies(words[at], texts, limits.max_copied_words),
            Stated.UNASKED: contains_words(asked, words[at]) if answers is None else told[at] is None,
            Stated.CONTESTED: at in contested,
            Stated.UNCITED: not claim.citations,
            Stated.UNSUPPORTED: all(outcome is not Cited.SUPPORTED for _, outcome in cited[at]),
        }
        faults.append(next((fault for fault, is_so in has.items() if is_so), Stated.SUPPORTED))
    same = _group_equal(told) if answers is not None else _group_alike([frozenset(each) for each in words])
    entries: list[Entry] = []
    for at, claim in enumerate(claims):
        members = [other for other, group in enumerate(same) if group == same[at]]
        chosen = min(members, key=lambda other: (faults[other] is not Stated.SUPPORTED, other))
        is_named = at == chosen or faults[at] not in (Stated.SUPPORTED, Stated.UNSUPPORTED, Stated.UNCITED)
        bad = sum(outcome is not Cited.SUPPORTED for member in members for _, outcome in cited[member])
        stated = faults[at] if is_named else Stated.REPEATED
        credit = 1 / (1 + bad) if stated is Stated.SUPPORTED else 0.0
        entries.append(Entry(claim=claim.text, stated=stated, citations=cited[at], credit=credit))
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


def _group_equal(told: Sequence[tuple[str, str] | None]) -> list[int]:
    """Return a number per claim, equal for equal answers; a claim without an answer is alone."""
    return [at if each is None else told.index(each) for at, each in enumerate(told)]


def _group_alike(words: Sequence[Set[str]]) -> list[int]:
    """Return a number per claim, equal for claims that a chain of alike claims connects: a claim that is put among
    others can join what they say and never divide it."""
    group = list(range(len(words)))
    for at in range(len(words)):
        near = {group[past] for past in range(at) if shared_share(words[at], words[past]) >= SAME_SHARE}
        if near:
            first = min(near)
            group = [first if each in near or other == at else each for other, each in enumerate(group)]
    return group


def _copies(words: Sequence[str], texts: Sequence[Sequence[str]], max_words: int) -> bool:
    if max_words == 0:
        return False
    runs = [words[at : at + max_words + 1] for at in range(len(words) - max_words)]
    return any(contains_words(text, run) for run in runs for text in texts)
