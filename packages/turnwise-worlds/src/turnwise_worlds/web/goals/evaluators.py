"""WebArena's evaluators: of an answer, of an address, and of what a page of the site would show (Zhou et al. 2023,
arXiv:2307.13854, section 3.2). Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import SequenceMatcher
from typing import Literal
from urllib.parse import parse_qsl

from turnwise_worlds.web.site.handle import Request, handle
from turnwise_worlds.web.site.state import State
from turnwise_worlds.web.snapshot import extract, format_page

Match = Literal["exact", "must_include", "fuzzy"]
OR = " |OR| "
"""Divides texts of which one is enough."""
_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?")
FUZZY = 0.8
"""An answer that is this much like the right one matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """What the answer must be."""

    match: Match
    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlCheck:
    """Addresses, one of which must be the last."""

    wanted: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCheck:
    """What a page of the site must show in the end."""

    path: str
    user: str = ""
    """The account that looks at it; empty for a visitor without one."""
    includes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


Check = AnswerCheck | UrlCheck | PageCheck


def check_visit(checks: Sequence[Check], answer: str, url: str, state: State) -> float:
    """Return the product of all checks: 1 if every one holds, else 0."""
    return float(all(_hold(check, answer, url, state) for check in checks))


def _hold(check: Check, answer: str, url: str, state: State) -> bool:
    match check:
        case AnswerCheck(match=match, wanted=wanted):
            return match_string(match, answer, wanted)
        case UrlCheck(wanted=wanted):
            return match_url(url, wanted)
        case PageCheck():
            return match_page(check, state)


def match_string(match: Match, answer: str, wanted: Sequence[str]) -> bool:
    """Compare an answer without quotes around it, blanks and case.

    Each wanted text may be several, divided by " |OR| ", of which one is enough. "exact": with one text.
    "must_include": every wanted text is in the answer; a text of one word is a word of it, or the same number: 0 is in
    "it is $0.00." and not in "20". "fuzzy": every wanted text is like the answer by `SequenceMatcher.ratio` of at least
    .8, where the published code asks a language model. An empty answer or nothing wanted never matches.
    """
    given = _clean(answer)
    if not given or not wanted or (match == "exact" and len(wanted) > 1):
        return False
    return all(any(_match_one(match, given, _clean(text)) for text in each.split(OR)) for each in wanted)


def _match_one(match: Match, given: str, text: str) -> bool:
    if match == "exact":
        return given == text
    if match == "fuzzy":
        return SequenceMatcher(None, text, given).ratio() >= FUZZY
    if " " in text:
        return text in given
    return any(_is_same_word(word.strip(".,;:!?()"), text) for word in given.split())


def _is_same_word(word: str, text: str) -> bool:
    if word == text:
        return True
    numbers = [each.lstrip("$").replace(",", "") for each in (word, text)]
    return all(_NUMBER.fullmatch(each) for each in numbers) and Decimal(numbers[0]) == Decimal(numbers[1])


def match_url(url: str, wanted: Sequence[str]) -> bool:
    """Compare an address with several: its path is that of one, and each field of that one's query has its value."""
    path, fields = _split(url)
    for each in wanted:
        wanted_path, wanted_fields = _split(each)
        if path == wanted_path and all(fields.get(name) == value for name, value in wanted_fields.items()):
            return True
    return False


def match_page(check: PageCheck, state: State) -> bool:
    """Ask the site for a page and compare its text, as the account that the check names sees it. The page is rendered
    from the state; what a surface shows is not read."""
    seen = handle(replace(state, user=check.user), Request(method="GET", path=check.path))
    text = format_page(extract(seen.html))
    found = all(any(option in text for option in each.split(OR)) for each in check.includes)
    return found and not any(each in text for each in check.excludes)


def _split(url: str) -> tuple[str, Mapping[str, str]]:
    path, _, query = url.partition("?")
    return path.rstrip("/") or "/", dict(parse_qsl(query, keep_blank_values=True))


def _clean(text: str) -> str:
    return " ".join(text.split()).strip("\"' ").lower()
