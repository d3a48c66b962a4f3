"""A checked report as one page of HTML, without scripts and without anything loaded: all of its text is untrusted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from turnwise.core.types import ToolRecord
from turnwise_rewards.grounding.claims import read_section_claims
from turnwise_rewards.grounding.ledger import Cited, Stated
from turnwise_rewards.grounding.passages import Passage
from turnwise_synthesis.research.checked import CheckedReport
from turnwise_synthesis.research.desk import find_passages
from turnwise_synthesis.research.evidence import ClaimEvidence, Evidence, Retrieval, find_retrievals, list_evidence

MAX_SHOWN = 600
"""Characters of a passage, a call or its answer that are shown."""
STATED: dict[Stated, str] = {
    Stated.UNCITED: "cites nothing",
    Stated.CONTESTED: "the report also says otherwise",
    Stated.REPEATED: "repeated",
    Stated.UNASKED: "answers nothing that was asked",
    Stated.COPIED: "copied from a passage",
    Stated.UNREAD: "beyond what is read",
}
CITED: dict[Cited, str] = {
    Cited.SUPPORTED: "supports it",
    Cited.UNSUPPORTED: "does not tell",
    Cited.CONTRADICTED: "says otherwise or is overruled",
    Cited.FABRICATED: "no such passage was retrieved",
    Cited.OWN_TEXT: "written by the agent itself",
    Cited.DUPLICATE: "cited twice",
    Cited.UNREAD: "beyond what is read",
}
STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--dim:#5d6675;--line:#d9dee6;--good:#1d7a46;--bad:#b3261e;--back:#fff;
--soft:#f4f6f9}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--dim:#9aa4b2;--line:#343b47;--good:#6fcf97;--bad:#ff8a80;
--back:#14181f;--soft:#1c222b}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:46rem;margin:0 auto;padding:2rem 1.2rem 4rem}
h1{font-size:1.55rem;line-height:1.25;margin:0 0 .6rem}
h2{font-size:1.12rem;margin:2rem 0 .5rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
.dim,.why{color:var(--dim);font-size:.86rem}
.answer{font-size:1.1rem;padding:.7rem 1rem;background:var(--soft);border-left:4px solid var(--dim);margin:1rem 0}
.figures{display:flex;flex-wrap:wrap;gap:.4rem 1.4rem;margin:.8rem 0;padding:0;list-style:none}
.figures b{font-size:1.15rem}
ul.claims,ol.sources{list-style:none;margin:0;padding:0}
ul.claims li{padding:.4rem 0 .4rem .8rem;border-left:3px solid var(--good);margin:.45rem 0}
ul.claims li.bad{border-color:var(--bad)}
li .why{display:block}
li.bad .why{color:var(--bad)}
sup a{text-decoration:none;padding:0 .15em;font-weight:600;color:var(--good)}
sup a.bad{color:var(--bad)}
ol.sources li{padding:.55rem .8rem;margin:.45rem 0;background:var(--soft);overflow-wrap:anywhere}
ol.sources li:target{outline:2px solid var(--dim)}
blockquote{margin:.25rem 0;white-space:pre-wrap}
details{margin-top:2rem}
summary{cursor:pointer;color:var(--dim)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;background:var(--soft);padding:.5rem .7rem}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Research:
    """What is shown of one episode."""

    question: str
    answer: str | None
    """None if there is none."""
    verdict: str
    """What is known about the answer; "" if nothing."""
    sections: Mapping[str, str]
    """Headings and texts of the report."""
    checked: CheckedReport
    records: Sequence[ToolRecord]
    """All calls of the episode."""
    origins: Mapping[str, str]
    """Where passages come from, by id; empty where that is known from their text."""
    notes: Sequence[str]
    """What a reader should know, one line each."""


def write_page(research: Research) -> str:
    """Return the page."""
    passages, retrievals = find_passages(research.records), find_retrievals(research.records)
    sections = list(divide_evidence(research, passages, retrievals))
    cited = dict.fromkeys(each.id for _, claims in sections for claim in claims for each in claim.evidence)
    places = {name: number for number, name in enumerate(cited, 1)}
    body = [
        f"<h1>{escape(research.question)}</h1>",
        _draw_answer(research),
        _draw_figures(research, len(passages)),
        *(f"<p class=dim>{escape(note)}</p>" for note in research.notes),
        *(_draw_section(heading, claims, places) for heading, claims in sections),
        _draw_sources(places, passages, retrievals, research.origins),
        _draw_calls(research.records),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(research.question[:80])}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def divide_evidence(
    research: Research, passages: Mapping[str, Passage], retrievals: Mapping[str, Retrieval]
) -> Iterator[tuple[str, list[ClaimEvidence]]]:
    """Yield heading and claims of every section in the order of the report; claims that no section has by itself come
    last."""
    waiting: dict[str, list[ClaimEvidence]] = {}
    for ledger in research.checked.ledgers:
        for each in list_evidence(ledger, passages, retrievals):
            waiting.setdefault(each.claim, []).append(each)
    for heading, claims in read_section_claims(research.sections):
        yield heading, [waiting[claim.text].pop(0) for claim in claims if waiting.get(claim.text)]
    if rest := [each for left in waiting.values() for each in left]:
        yield "Further claims", rest


def _draw_answer(research: Research) -> str:
    if research.answer is None:
        return "<p class=answer>No answer: a limit ended the episode before there was one.</p>"
    verdict = f" <span class=dim>{escape(research.verdict)}</span>" if research.verdict else ""
    return f"<p class=answer>{escape(research.answer[:MAX_SHOWN])}{verdict}</p>"


def _draw_figures(research: Research, num_passages: int) -> str:
    checked = research.checked
    count = sum(len(ledger.entries) for ledger in checked.ledgers)
    supported = sum(ledger.num_supported for ledger in checked.ledgers)
    citations = sum(ledger.num_citations for ledger in checked.ledgers)
    good = sum(ledger.count_cited(Cited.SUPPORTED) for ledger in checked.ledgers)
    figures = [
        (f"{supported} of {count}", "claims supported"),
        (f"{good} of {citations}", "citations that support their claim"),
        (str(checked.num_fabricated), "citations of passages that do not exist"),
        (str(num_passages), "passages retrieved"),
        (str(len(research.records)), "calls"),
    ]
    if checked.named is not None:
        named = checked.disputes.num_supported if checked.disputes is not None else 0
        figures.insert(1, (f"{named} of {checked.num_disputed}", "contradictions named"))
    items = "".join(f"<li><b>{escape(value)}</b> <span class=dim>{text}</span></li>" for value, text in figures)
    nothing = "" if count else "<p>The report states nothing.</p>"
    none = "" if num_passages else "<p>No search returned a passage: there is nothing to cite.</p>"
    return f"<ul class=figures>{items}</ul>{nothing}{none}"


def _draw_section(heading: str, claims: Sequence[ClaimEvidence], places: Mapping[str, int]) -> str:
    items = "".join(_draw_claim(claim, places) for claim in claims) or "<li class=bad>No claim.</li>"
    return f"<h2>{escape(heading[:MAX_SHOWN]) or 'Without a heading'}</h2><ul class=claims>{items}</ul>"


def _draw_claim(claim: ClaimEvidence, places: Mapping[str, int]) -> str:
    is_good = claim.stated is Stated.SUPPORTED and all(each.outcome is Cited.SUPPORTED for each in claim.evidence)
    # What a claim's citations are explains an unsupported one.
    reasons = [] if claim.stated in (Stated.SUPPORTED, Stated.UNSUPPORTED) else [STATED[claim.stated]]
    reasons += [f"[{each.id}] {CITED[each.outcome]}" for each in claim.evidence if each.outcome is not Cited.SUPPORTED]
    why = f"<span class=why>{escape('; '.join(reasons))}</span>" if reasons else ""
    links = "".join(_draw_link(each, places[each.id]) for each in claim.evidence)
    return f"<li{'' if is_good else ' class=bad'}>{escape(claim.claim)}{links}{why}</li>"


def _draw_link(evidence: Evidence, place: int) -> str:
    bad = "" if evidence.outcome is Cited.SUPPORTED else " class=bad"
    return f"<sup><a href='#s{place}'{bad}>[{escape(evidence.id)}]</a></sup>"


def _draw_sources(
    places: Mapping[str, int],
    passages: Mapping[str, Passage],
    retrievals: Mapping[str, Retrieval],
    origins: Mapping[str, str],
) -> str:
    items = []
    for name, place in places.items():
        passage, found = passages.get(name), retrievals.get(name)
        origin = f" <span class=dim>{escape(origins[name])}</span>" if name in origins else ""
        text = "<blockquote>No call of this episode returned it.</blockquote>"
        if passage is not None:
            text = f"<blockquote>{escape(_shorten(passage.text))}</blockquote>"
        where = f"<span class=dim>{escape(_describe(found))}</span>" if found else ""
        items.append(f"<li id=s{place}><b>[{escape(name)}]</b>{origin}{text}{where}</li>")
    return (
        f"<h2>Sources</h2><ol class=sources>{''.join(items)}</ol>" if items else "<h2>Sources</h2><p>None is cited.</p>"
    )


def _draw_calls(records: Sequence[ToolRecord]) -> str:
    rows = "".join(
        f"<pre>{number}. {escape(record.call.name)} {escape(_shorten(record.call.arguments))}\n"
        f"{escape(_shorten(record.observation))}</pre>"
        for number, record in enumerate(records, 1)
    )
    return f"<details><summary>What the agent did: {len(records)} calls</summary>{rows}</details>"


def _describe(retrieval: Retrieval) -> str:
    try:
        read = json.loads(retrieval.arguments)
    except ValueError:
        read = None
    said = ", ".join(map(str, read.values())) if isinstance(read, dict) else retrieval.arguments
    return f"found by call {retrieval.number}, {retrieval.tool}: {_shorten(said)}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ... ({len(text):,} characters)"
