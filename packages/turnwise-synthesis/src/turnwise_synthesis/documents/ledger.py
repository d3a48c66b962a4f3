"""What was kept and what was dropped, with the reason, and what both cost."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from turnwise.core.documents import Document
from turnwise.exchange.document_rows import to_document_row

Reason = Literal[
    "empty",
    "refuses",
    "cut",
    "repeats",
    "off_format",
    "leaks_answer",
    "misses_evidence",
    "wrong_answer",
    "duplicate",
    "held_out",
    "no_evidence",
    "no_outcome",
    "no_choice",
    "too_long",
    "failed",
]
REASONS: dict[Reason, str] = {
    "empty": "the writer, or the source, gave no text",
    "refuses": "the writer refused",
    "cut": "the writer's limit of tokens ended the text",
    "repeats": "the text says the same words again and again",
    "off_format": "the text has no search, or no answer, where one is asked for",
    "leaks_answer": "a plan or a question contains the answer that it is to look for",
    "misses_evidence": "the first search finds no passage that the answer needs",
    "wrong_answer": "the reasoning does not end in a gold answer",
    "duplicate": "the same document, or the same passage, was there before",
    "held_out": "it names an entity of a held-out task",
    "no_evidence": "the task names no passage that answers it, so nothing can be checked",
    "no_outcome": "the trajectory has no reward",
    "no_choice": "no step of the trajectory has an alternative",
    "too_long": "the passage is longer than the limit of words",
    "failed": "the writer gave no reply: a request or an episode failed",
}
SHOWN_CHARS = 400
"""Most characters of a dropped text that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Something that did not become a document."""

    kind: str
    item: str
    """Id of the passage, task or trajectory."""
    reason: Reason
    text: str
    """What was dropped, or what failed; cut at `SHOWN_CHARS`."""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Counts of one synthesis, by kind of document."""

    kept: Counter[str] = field(default_factory=Counter)
    dropped: list[Dropped] = field(default_factory=list)
    prompt_tokens: Counter[str] = field(default_factory=Counter)
    """Tokens that writers read, by kind; 0 for a writer that counts none."""
    reply_tokens: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds in which writers wrote, summed over requests, whether they ran at once or not."""
    processor_s: float = 0.0
    """Processor seconds of this process while it made the documents."""
    _seen: set[bytes] = field(default_factory=set)

    def drop(self, kind: str, item: str, reason: Reason, text: str = "") -> None:
        """Note what is left out."""
        self.dropped.append(Dropped(kind=kind, item=item, reason=reason, text=text[:SHOWN_CHARS]))

    def keep(self, kind: str, document: Document) -> Document | None:
        """Return the document, or None where an equal one was kept before."""
        content = {name: value for name, value in to_document_row(document).items() if name != "id"}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode(errors="surrogatepass")).digest()
        if digest in self._seen:
            self.drop(kind, document.id, "duplicate")
            return None
        self._seen.add(digest)
        self.kept[kind] += 1
        return document

    def count(self, kind: str, *, prompt_tokens: int, reply_tokens: int, seconds: float) -> None:
        """Note the cost of a reply, kept or not."""
        self.prompt_tokens[kind] += prompt_tokens
        self.reply_tokens[kind] += reply_tokens
        self.seconds[kind] += seconds

    def reasons(self, kind: str) -> Counter[Reason]:
        """Return how many of a kind were dropped, by reason."""
        return Counter(each.reason for each in self.dropped if each.kind == kind)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row for each thing that was dropped."""
        for each in self.dropped:
            yield {"kind": each.kind, "item": each.item, "reason": each.reason, "text": each.text}

    def describe(self) -> Iterator[str]:
        """Yield one line per kind: kept, dropped by reason, cost per kept one."""
        for kind in sorted({*self.kept, *(each.kind for each in self.dropped)}):
            kept, reasons = self.kept[kind], self.reasons(kind)
            lost = ", ".join(f"{name} {count:,}" for name, count in sorted(reasons.items()))
            total = kept + sum(reasons.values())
            line = f"{kind}: kept {kept:,} of {total:,}"
            yield line + (f"; dropped: {lost}" if lost else "") + self._describe_cost(kind, kept)

    def describe_million(self) -> str:
        """Return what a million documents of this mix would take, at the measured rate; empty if none was kept."""
        kept = self.kept.total()
        if not kept or not self.processor_s:
            return ""
        each = self.processor_s / kept
        tokens = (self.prompt_tokens.total() + self.reply_tokens.total()) / kept
        written = f" and {tokens / 1e3:,.2f} billion tokens of the writer" if tokens else ""
        return (
            f"{kept:,} documents kept in {self.processor_s:,.1f} s of this machine's processor, {each:.2g} s each; a "
            f"million of them: {each * 1e6 / 3600:,.1f} core hours{written}"
        )

    def _describe_cost(self, kind: str, kept: int) -> str:
        tokens, seconds = self.prompt_tokens[kind] + self.reply_tokens[kind], self.seconds[kind]
        if not kept or not seconds:
            return ""
        read = f"{tokens / kept:,.0f} tokens and " if tokens else ""
        return f"; per kept one {read}{seconds / kept:.3g} s of the writer"
