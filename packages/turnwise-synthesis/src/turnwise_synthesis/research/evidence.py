"""The evidence ledger: every claim of a report, each passage that it cites, and where that was retrieved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.types import ToolRecord
from turnwise_rewards.grounding.ledger import Cited, Ledger, Stated
from turnwise_rewards.grounding.passages import Passage
from turnwise_synthesis.research.desk import find_passages


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """The call that first showed a passage."""

    number: int
    """Of all calls of the episode, from 1."""
    tool: str
    arguments: str
    """As the model wrote them, JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One citation of one claim."""

    id: str
    """The passage, as `normalize_id` writes it."""
    outcome: Cited
    text: str | None
    """What the passage says; None if no tool returned it."""
    retrieval: Retrieval | None
    """Where it was retrieved; None if no tool returned it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEvidence:
    """One claim with its evidence; without any if it cites nothing."""

    claim: str
    stated: Stated
    evidence: tuple[Evidence, ...]


def find_retrievals(records: Sequence[ToolRecord]) -> dict[str, Retrieval]:
    """Return the first call that showed each passage, by its id."""
    found: dict[str, Retrieval] = {}
    for number, record in enumerate(records, 1):
        retrieval = Retrieval(number=number, tool=record.call.name, arguments=record.call.arguments)
        for name in find_passages([record]):
            found.setdefault(name, retrieval)
    return found


def list_evidence(
    ledger: Ledger, passages: Mapping[str, Passage], retrievals: Mapping[str, Retrieval]
) -> list[ClaimEvidence]:
    """Return every claim of a ledger with its evidence, in the order of the report."""
    return [
        ClaimEvidence(
            claim=entry.claim,
            stated=entry.stated,
            evidence=tuple(
                Evidence(
                    id=name,
                    outcome=outcome,
                    text=passages[name].text if name in passages else None,
                    retrieval=retrievals.get(name),
                )
                for name, outcome in entry.citations
            ),
        )
        for entry in ledger.entries
    ]
