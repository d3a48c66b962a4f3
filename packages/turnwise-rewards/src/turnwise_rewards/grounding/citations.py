"""Citations in running text, in the usual spellings: where each stands and which passages it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NOUN = r"(?:(?:doc|document|passage|source|ref|reference|result|page|paper|citation)s?(?![A-Za-z]))"
_URL = r"https?://[^\s<>\"'`(){}\[\]|\u3010\u3011]+"
_ITEM = re.compile(
    rf"(?:{_NOUN}\.?\s*[:#_-]?\s*)?[#@^]?(?:call\s+\d+|[A-Za-z]{{0,12}}[-_:.]?\d[\w.:\u2013\u2014-]*(?:\s*[-\u2013\u2014]\s*\d+)?|{_URL})",
    re.IGNORECASE,
)
_LEAD = re.compile(r"(?:(?:see|cf\.?|from|according to)\s+)?(?:sources?\s*:\s*)?", re.IGNORECASE)
_NAMED = re.compile(rf"(?:(?:see|cf\.?|from|according to)\s+)?(?:{_NOUN}\b|https?:)", re.IGNORECASE)
_SPLIT = re.compile(r"[,;&\n]|\band\b|\s(?=@)", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,9})\s*[-\u2013\u2014]\s*(\d{1,9})")
_HEAD = re.compile(rf"{_NOUN}\.?\s*[:#_-]?\s*(?=[\w@#^])", re.IGNORECASE)
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_SUPERSCRIPTS = str.maketrans("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "0123456789")
MAX_RANGE = 20
"""Most passages that a range such as `[3-7]` names; a longer one is an id with a hyphen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One place of a text that names passages."""

    ids: tuple[str, ...]
    """What it names, in order, as `normalize_id` writes it; an id that is named twice is there twice."""
    start: int
    """Position of its first character."""
    end: int
    """Position after its last character."""
    spelling: str
    """A name of `SPELLINGS`."""
    kept: str = ""
    """Words of the claim inside the citation, such as the text of a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """One way to write a citation."""

    name: str
    pattern: re.Pattern[str]
    """Has a group `ids`, and `kept` where words of the claim may stand inside."""
    example: str
    ids: tuple[str, ...]
    """What the example names."""
    is_list: bool = False
    """Whether its brackets hold other things too: it is a citation only if every item looks like an id, or the first
    is an address or begins with a word such as "doc"; what follows such a one is a title or a place in it."""
    needs_noun: bool = False
    """Whether the first item must be such a one."""


_TAG = r"<(?P<tag>cite|citation|sup|source|ref)"
_ANCHOR = r"#?[\w.-]{0,60}\d[\w.-]{0,60}"
_TITLE = r"(?:\s+\"[^\"\n]*\")?"
_BRACKETED = r"\[(?P<ids>[^\[\]\n]{1,300})\]"
_IMAGE = r"(?<=!)\[[^\[\]\n]{1,300}\]\("
_RAISED = r"(?P<ids>[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+)"


def _spelling(name: str, pattern: str, example: str, *ids: str, **kind: bool) -> Spelling:
    return Spelling(name=name, pattern=re.compile(pattern, re.IGNORECASE), example=example, ids=ids, **kind)


SPELLINGS = (
    _spelling(
        "numbered link", rf"\[\[[^\[\]\n]*\]\]\(\s*(?P<ids>{_URL})\s*\)", "A [[1]](https://a.org/x)", "https://a.org/x"
    ),
    _spelling(
        "link",
        rf"(?<!!)\[(?P<kept>[^\[\]\n]*)\]\(\s*<?(?P<ids>{_URL}|{_ANCHOR})>?{_TITLE}\s*\)",
        "[A](https://a.org/x/)",
        "https://a.org/x",
    ),
    _spelling(
        "cite tag",
        rf"{_TAG}\s+(?:ids?|source|doc)\s*=\s*[\"']?(?P<ids>[^\"'<>\n]+)[\"']?\s*>(?P<kept>[^<]*)</(?P=tag)>",
        '<cite id="17">A</cite>',
        "17",
    ),
    _spelling("citation tag", rf"{_TAG}>(?P<ids>[^<\n]+)</(?P=tag)>", "A <citation>17, 18</citation>", "17", "18"),
    _spelling(
        "dagger",
        r"\u3010(?P<ids>[^\u3010\u3011\n\u2020]+)(?:\u2020[^\u3010\u3011\n]*)?\u3011",
        "A \u301017\u2020source\u3011",
        "17",
    ),
    _spelling(
        "LaTeX",
        r"\\cite[tp]?\*?(?:\[[^\[\]\n]*\])?\{(?P<ids>[^{}\n]+)\}",
        r"A \cite{tolen17, vale03}",
        "tolen17",
        "vale03",
    ),
    _spelling("key", r"\[(?P<ids>@[^\[\]\n]+)\]", "A [@tolen17; @vale03]", "tolen17", "vale03"),
    _spelling("footnote", r"\[\^(?P<ids>[\w.-]+)\]", "A[^17]", "17"),
    _spelling("brackets", rf"(?!{_IMAGE}){_BRACKETED}", "A [doc 17, 18]", "17", "18", is_list=True),
    _spelling("parentheses", r"\((?P<ids>[^()\n]{1,300})\)", "A (source: doc 17)", "17", is_list=True, needs_noun=True),
    _spelling(
        "phrase",
        rf"\b(?:according to|as stated in|as per|as in|per|see)\s+(?:the\s+)?(?P<ids>{_NOUN}\s*[#_-]?\d+)\b,?",
        "According to doc 17, it is A.",
        "17",
    ),
    _spelling("caret", r"(?<=\w)\^(?P<ids>\d+(?:,\d+)*)\^", "A^17^", "17"),
    _spelling("superscript", rf"(?:(?<=[^\W\d_]{{4}})|(?<=[.,;:!?)\]\"'])){_RAISED}", "It is A.\u00b9\u2077", "17"),
    _spelling("address", rf"<?(?P<ids>{_URL})>?", "A, see https://a.org/x.", "https://a.org/x"),
)
"""Every spelling, the more specific ones first: a place counts once, for the first that matches it."""


def normalize_id(text: str) -> str:
    """Write an id so that its spellings are equal: `Doc 17`, `#17`, `doc_17` and `017` are `17`, `PC-17` is `pc17`.

    Addresses lose a closing slash, full stop or comma, and their scheme and host are lower-case; other ids are
    lower-case."""
    said = text.strip().strip("\"'`<>")
    if re.match(r"https?://", said, re.IGNORECASE):
        scheme, _, rest = said.rstrip(".,;:!?").partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme.lower()}://{host.lower()}{slash}{path}".rstrip("/")
    said = _HEAD.sub("", said, count=1) if _HEAD.match(said) else said
    said = said.lstrip("#@^ ").rstrip(".,;:").casefold()
    said = re.sub(r"^([a-z]+)[-_ ](?=\d)", r"\1", said)
    return str(int(said)) if said.isdecimal() and len(said) < 10 else said


def read_ids(text: str) -> tuple[str, ...]:
    """Return the ids of a list: `doc 3, 5-7 and #9` names 3, 5, 6, 7, 9."""
    ids: list[str] = []
    for item in _split(text):
        span = _RANGE.fullmatch(_HEAD.sub("", item, count=1) if _HEAD.match(item) else item)
        if span and 0 < int(span[2]) - int(span[1]) < MAX_RANGE:
            ids += map(str, range(int(span[1]), int(span[2]) + 1))
        elif name := normalize_id(item):
            ids.append(name)
    return tuple(ids)


def find_citations(text: str) -> list[Citation]:
    """Return the citations of a text in their order, none within another; what stands in code is none."""
    taken = bytearray(len(text))
    for match in _CODE.finditer(text):
        taken[match.start() : match.end()] = b"\1" * len(match[0])
    found: list[Citation] = []
    for spelling in SPELLINGS:
        for match in spelling.pattern.finditer(text):
            ids = _ids_of(match, spelling)
            if not ids or any(taken[match.start() : match.end()]):
                continue
            taken[match.start() : match.end()] = b"\1" * len(match[0])
            start, end, kept = match.start(), match.end(), match.groupdict().get("kept") or ""
            if _ITEM.fullmatch(kept.strip()):
                ids, kept = ((normalize_id(kept),) if match["ids"].startswith("#") else ids), ""
            elif text[start - 1 : start] == "(" and text[end : end + 1] == ")":
                start, end, kept = start - 1, end + 1, ""
            found.append(Citation(ids=ids, start=start, end=end, spelling=spelling.name, kept=kept))
    return sorted(found, key=lambda citation: citation.start)


def take_out(text: str, citations: Sequence[Citation]) -> str:
    """Return the text without these citations, but with the words of the claim inside them."""
    pieces, at = [], 0
    for citation in citations:
        pieces += [text[at : citation.start], citation.kept]
        at = citation.end
    return "".join([*pieces, text[at:]])


def _split(text: str) -> list[str]:
    return [item for item in (part.strip() for part in _SPLIT.split(text)) if item]


def _ids_of(match: re.Match[str], spelling: Spelling) -> tuple[str, ...]:
    text = match["ids"].strip().translate(_SUPERSCRIPTS)
    if not spelling.is_list:
        return read_ids(text)
    lead = _LEAD.match(text)
    rest = text[lead.end() :] if lead else text
    items = _split(rest)
    named = bool(_NAMED.match(text))
    if not items or not _ITEM.fullmatch(items[0]) or (spelling.needs_noun and not named):
        return ()
    if not named and not all(_ITEM.fullmatch(item) for item in items):
        return ()
    return tuple(name for item in items if _ITEM.fullmatch(item) for name in read_ids(item))
