"""The page of a checked report: every claim with what it cites, and nothing of its text is markup."""

import asyncio
import re
from html.parser import HTMLParser
from typing import Any

from turnwise.core.types import ToolCall, ToolRecord
from turnwise.environments.episodes import play_episode
from turnwise_synthesis.research.desk import list_sections
from turnwise_synthesis.research.evidence import find_retrievals
from turnwise_synthesis.research.page import Research, write_page
from turnwise_synthesis.research.world.family import WorldResearch

FAMILY = WorldResearch(style="full", num_entities=20, num_words=12, contradictions=1.0)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&"


def shown(policy: str, **more: Any) -> Research:
    task = FAMILY.task("heldout", 0)
    played = asyncio.run(play_episode(FAMILY, task, FAMILY.policy(policy), seed=0, max_turns=50))
    records = [each for result in played.results for each in result.tool_records]
    fields: dict[str, Any] = {
        "question": "What?",
        "answer": "A",
        "verdict": "right",
        "sections": list_sections(records),
        "checked": FAMILY.check(task, records),
        "records": records,
        "origins": {},
        "notes": [],
    }
    return Research(**{**fields, **more})


class Tags(HTMLParser):
    """Collects the tags, their attributes, and the ids that links name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names += [name for name, _ in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_every_claim_is_there_with_a_link_to_its_source() -> None:
    research = shown("oracle")
    page = write_page(research)
    tags = Tags(page)
    claims = sum(len(ledger.entries) for ledger in research.checked.ledgers)
    assert claims == len(tags.links) > 4
    assert {link.removeprefix("#") for link in tags.links} <= set(tags.ids)
    assert "class=bad" not in page
    assert f"<b>{claims} of {claims}</b>" in page
    assert "found by call 1, search" in page


def test_unsupported_claims_and_passages_that_do_not_exist_are_marked() -> None:
    page = write_page(shown("cite_nothing_there"))
    claims = page.split("<h2>Sources")[0]
    assert claims.count("<li class=bad>") == claims.count("no such passage was retrieved") > 2
    assert "No call of this episode returned it." in page
    careless = write_page(shown("naive"))
    assert "does not tell" in careless or "says otherwise or is overruled" in careless
    assert "cites nothing" in write_page(shown("uncited"))


def test_no_text_becomes_markup() -> None:
    call = ToolCall(id="a", name="search", arguments=EVIL)
    evil = ToolRecord(call=call, observation=f"{EVIL} [doc 1]", error=None, seconds=0.0)
    research = shown(
        "oracle", question=EVIL, answer=EVIL, verdict=EVIL, origins={"17": EVIL}, notes=[EVIL], records=[evil]
    )
    page = write_page(Research(**{**{f: getattr(research, f) for f in Research.__slots__}, "sections": {EVIL: EVIL}}))
    tags = Tags(page)
    assert not {"script", "img", "iframe", "link", "object", "form"} & set(tags.tags)
    assert not [name for name in tags.names if name.startswith("on")]
    assert "default-src 'none'" in page
    assert not re.search(r"https?://", page)


def test_an_episode_that_found_and_said_nothing_says_so() -> None:
    research = shown("no_claims", answer=None)
    page = write_page(research)
    assert "No answer: a limit ended the episode" in page
    assert "The report states nothing." in page
    empty = FAMILY.check(FAMILY.task("heldout", 0), [])
    nothing = Research(
        question="q", answer="a", verdict="", sections={}, checked=empty, records=[], origins={}, notes=[]
    )
    assert "No search returned a passage" in write_page(nothing)


def test_a_passage_is_retrieved_by_the_first_call_that_shows_it() -> None:
    calls = [ToolCall(id=str(at), name=name, arguments="{}") for at, name in enumerate(["note", "search", "search"])]
    texts = ["A [doc 1]", "B [doc 2]\nA [doc 1]", "B [doc 2]\nC [doc 3]"]
    records = [
        ToolRecord(call=c, observation=text, error=None, seconds=0.0) for c, text in zip(calls, texts, strict=True)
    ]
    found = find_retrievals(records)
    assert {name: each.number for name, each in found.items()} == {"1": 2, "2": 2, "3": 3}
