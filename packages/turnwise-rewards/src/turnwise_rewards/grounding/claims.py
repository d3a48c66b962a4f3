"""The claims of a report, each with what it cites."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from turnwise.rewards.answers import extract_answer
from turnwise.rewards.thoughts import drop_thoughts
from turnwise_rewards.grounding.citations import find_citations, normalize_id, read_ids, take_out

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_HEADING = re.compile(r"\s*(?:#{1,6}\s.*|[*_]{2}[^*_]+[*_]{2}:?|.*:)\s*")
_BULLET = re.compile(r"^\s*(?:[-*+\u2022]|\d{1,3}[.)])\s+")
_RULE = re.compile(r"[\s|:*_=-]*")
_REFERENCES = re.compile(
    r"^[ \t#*_]*(?:list of (?:all )?(?:relevant )?)?(?:references|sources|bibliography|works cited|citations|footnotes)"
    r"(?:[ \t]*\([^()\n]{0,80}\))?[ \t*_]*:?[ \t*_]*$",
    re.IGNORECASE | re.MULTILINE,
)
_FOOTNOTE = re.compile(r"^[ \t]*\[\^?([\w.-]+)\]:[ \t]*(.*)$", re.MULTILINE)
_ENTRY = re.compile(r"^[ \t]*(?:[-*][ \t]+)?(?:\[\^?([\w.-]+)\]|(\d{1,4})[.)])[ \t]*(.*)$", re.MULTILINE)
_BARE = re.compile(r"(?:docs?|documents?|passages?|sources?|results?)\.?\s*[:#_-]?\s*[A-Za-z]{0,12}\d[\w-]*", re.I)
_END = re.compile(r"[.!?][\"')\]]*(?=\s|\Z)")
_SHORT = re.compile(
    r"(?:\b(?:[A-Za-z]|dr|mr|mrs|ms|prof|st|vs|etc|e\.g|i\.e|cf|al|no|fig|inc|ltd|jr|sr|approx|u\.s|u\.k))\.\Z", re.I
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement of a report."""

    text: str
    """Its words, without citations."""
    citations: tuple[str, ...]
    """Ids of the passages that it names, in order; one that is named twice is there twice."""


def read_section_claims(sections: Mapping[str, str]) -> list[tuple[str, list[Claim]]]:
    """Return heading and claims of every section of a report, whose texts stand by heading.

    Numbers that a section's own list of references explains are that section's: sections that are written one by one
    often begin with 1 each. A section that is nothing but such a list explains those of sections without one, and has
    no claims."""
    listed = "\n".join(text for heading, text in sections.items() if _REFERENCES.fullmatch(heading))
    read: list[tuple[str, list[Claim]]] = []
    for heading, text in sections.items():
        if _REFERENCES.fullmatch(heading):
            continue
        has_own = listed == "" or _REFERENCES.search(text) is not None
        read.append((heading, read_claims(text if has_own else f"{_said(text)}\n\nReferences\n{listed}")))
    return read


def read_claims(report: str) -> list[Claim]:
    """Return the claims of a report in their order: its sentences, rows and list items.

    Thoughts, code, headings, lines that end with a colon, questions, and the list of references are no claims; where
    there is an `<answer>`, only what stands in the last one counts. A number that the references or footnotes explain
    names the passage that they name. A citation behind a full stop belongs to the sentence before it; one on a line of
    its own to the line before it.
    """
    body, named = _split_references(_FENCE.sub("", _said(report)))
    claims: list[Claim] = []
    for sentence in _sentences(body):
        citations = find_citations(sentence)
        ids = [name for citation in citations for each in citation.ids for name in named.get(each, (each,))]
        text = " ".join(take_out(sentence, citations).split()).strip(" |*_").rstrip(" .,;:")
        if re.search(r"\w", text):
            if not text.endswith("?"):
                claims.append(Claim(text=text, citations=tuple(ids)))
        elif claims and ids:
            claims[-1] = Claim(text=claims[-1].text, citations=(*claims[-1].citations, *ids))
    return claims


def _said(report: str) -> str:
    answer = extract_answer(report)
    return drop_thoughts(report) if answer is None else answer


def _split_references(text: str) -> tuple[str, Mapping[str, tuple[str, ...]]]:
    """Return the text without its references and footnotes, and what each of these names."""
    body, listed = text, ""
    for heading in _REFERENCES.finditer(text):
        body, listed = text[: heading.start()], text[heading.end() :]
    entries = [(match[1], match[2]) for match in _FOOTNOTE.finditer(body)]
    entries += [(match[1] or match[2], match[3]) for match in _ENTRY.finditer(listed)]
    named: dict[str, tuple[str, ...]] = {}
    for number, rest in entries:
        rest = rest.lstrip(" :")
        bare = _BARE.match(rest)
        ids = [name for citation in find_citations(rest) for name in citation.ids]
        if ids or bare:
            named[normalize_id(number)] = tuple(ids[:1]) or read_ids(bare[0] if bare else "")[:1]
    return _FOOTNOTE.sub("", body), named


def _sentences(body: str) -> Iterator[str]:
    for line in body.splitlines():
        line = _BULLET.sub("", line)
        if _HEADING.fullmatch(line) or _RULE.fullmatch(line):
            continue
        yield from _split_line(line)


def _split_line(line: str) -> Iterator[str]:
    """Cut a line behind full stops, but not within citations, abbreviations and numbers; what follows a full stop and
    is only a citation stays with the sentence before it."""
    inside = bytearray(len(line) + 1)
    citations = find_citations(line)
    for citation in citations:
        inside[citation.start : citation.end] = b"\1" * (citation.end - citation.start)
    start = 0
    for match in _END.finditer(line):
        end = match.end()
        if inside[match.start()] or match.start() < start or _SHORT.search(line[start : match.start() + 1]):
            continue
        for citation in citations:
            if citation.start >= end and not citation.kept and not line[end : citation.start].strip(" ,;"):
                end = citation.end
                end += len(line[end:]) - len(line[end:].lstrip("."))
        yield line[start:end]
        start = end
    yield line[start:]
