"""The passages that an episode retrieved, read from its tool records."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.types import ToolRecord
from turnwise_rewards.grounding.citations import normalize_id
from turnwise_rewards.grounding.words import contains_words, list_words

_NOUN = r"(?:(?:doc|document|passage|source|result|page)(?![A-Za-z]))"
_HEAD = re.compile(
    rf"^[ \t]*(?:\[(?P<bracket>{_NOUN}?[ #:_-]*[\w.-]*\d[\w.-]*)\](?P<title>:)?|"
    rf"(?P<noun>{_NOUN}[ #_-]*\d[\w.-]*)[ \t]*(?=[(:\-.]|$)|(?P<number>\d{{1,4}})[.)](?=[ \t]))[ \t:]*",
    re.IGNORECASE | re.MULTILINE,
)
_TAIL = re.compile(rf"\[(?P<id>{_NOUN}?[ #:_-]*[\w.-]*\d[\w.-]*)\][ \t.]*$", re.IGNORECASE | re.MULTILINE)
_ELEMENT = re.compile(
    rf"<(?P<tag>{_NOUN}|snippet|webpage)\s+[^<>]*?(?:id|index|url|href|source)\s*=\s*[\"']?(?P<id>[^\"'<>\n]+?)[\"']?"
    r"(?:\s[^<>]*)?>(?P<text>.*?)</(?P=tag)>",
    re.IGNORECASE | re.DOTALL,
)
_IDS = ("id", "doc_id", "docid", "document_id", "passage_id", "source_id", "url", "link", "href", "source")
_TEXTS = (
    "text",
    "content",
    "contents",
    "passage",
    "snippet",
    "body",
    "page_content",
    "document",
    "summary",
    "abstract",
)
_NAMING = ("id", "doc_id", "docid", "document_id", "page", "page_id", "url", "link", "doc")
"""Arguments of a call that name the one passage that it opens."""
MIN_OWN_WORDS = 4
"""Fewest words of a text that counts as the model's own because it wrote them before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """What an episode was shown under one id."""

    id: str
    """As `normalize_id` writes it."""
    texts: tuple[str, ...]
    """Each different text that was shown under it, in order."""
    is_own: bool = False
    """Whether the model had written all of it before it was shown: an echo is no source."""

    @property
    def text(self) -> str:
        """All texts, a line each."""
        return "\n".join(self.texts)


def read_passages(records: Sequence[ToolRecord], tools: Collection[str] = ()) -> dict[str, Passage]:
    """Return what tool calls showed, by id, from their observations after clipping; failed calls show nothing.

    An observation is JSON of objects with an id or address and a text; elements such as `<document id="17">`; blocks
    that begin with `[17]`, `Doc 17(Title: t)`, `Document 17:` or `1.`; lines that end with `[doc 17]`; or, if it has
    none of these, one passage, named by the id or address in the call's arguments and as `call 3`, the third.
    What repeats at least four words that the model wrote in this call or before, and nothing else, is its own.
    """
    shown: dict[str, dict[str, bool]] = {}
    written: list[list[str]] = []
    number = 0
    for record in records:
        written.append(list_words(record.call.arguments))
        if tools and record.call.name not in tools:
            continue
        number += 1
        if record.error is not None:
            continue
        for name, text in _read(record, number):
            words = list_words(text)
            own = len(words) >= MIN_OWN_WORDS and any(contains_words(past, words) for past in written)
            texts = shown.setdefault(normalize_id(name), {})
            texts[text] = texts.get(text, True) and own
    return {
        name: Passage(
            id=name,
            texts=tuple(text for text, own in texts.items() if not own) or tuple(texts),
            is_own=all(texts.values()),
        )
        for name, texts in shown.items()
    }


def to_passages(shown: Mapping[str, str | Passage]) -> dict[str, Passage]:
    """Return passages by id, for texts that were kept by the environment itself."""
    passages = [
        text if isinstance(text, Passage) else Passage(id=normalize_id(name), texts=(text,))
        for name, text in shown.items()
    ]
    return {passage.id: passage for passage in passages}


def _read(record: ToolRecord, number: int) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of every passage of one observation."""
    observation = record.observation
    pairs = _read_json(observation) or _read_elements(observation) or _read_lines(observation)
    if pairs:
        yield from pairs
    elif observation.strip():
        yield f"call {number}", observation
        yield from ((name, observation) for name in _named(record.call.arguments))


def _named(arguments: str) -> list[str]:
    try:
        read = json.loads(arguments)
    except ValueError:
        return []
    values = read.items() if isinstance(read, Mapping) else ()
    return [str(value) for key, value in values if key in _NAMING and isinstance(value, str | int) and str(value)]


def _read_json(observation: str) -> list[tuple[str, str]]:
    if not observation.lstrip().startswith(("[", "{")):
        return []
    try:
        read = json.loads(observation)
    except (ValueError, RecursionError):
        return []
    return list(_walk(read))


def _walk(value: Any) -> Iterator[tuple[str, str]]:
    waiting = [value]
    while waiting:
        at = waiting.pop(0)
        if isinstance(at, list):
            waiting += at
        elif isinstance(at, dict):
            text = " ".join(str(at[key]) for key in ("title", *_TEXTS) if isinstance(at.get(key), str))
            names = [str(at[key]) for key in _IDS if isinstance(at.get(key), str | int) and str(at[key]).strip()]
            if names and text:
                yield from ((name, text) for name in dict.fromkeys(names))
            else:
                waiting += [each for each in at.values() if isinstance(each, list | dict)]


def _read_elements(observation: str) -> list[tuple[str, str]]:
    return [(match["id"], match["text"].strip()) for match in _ELEMENT.finditer(observation)]


def _read_lines(observation: str) -> list[tuple[str, str]]:
    heads = list(_HEAD.finditer(observation))
    if heads:
        ends = [match.start() for match in heads[1:]] + [len(observation)]
        return [
            (match["bracket"] or match["noun"] or match["number"], observation[match.end() : end].strip())
            for match, end in zip(heads, ends, strict=True)
        ]
    tails = list(_TAIL.finditer(observation))
    starts = [0, *(match.end() for match in tails)][: len(tails)]
    return [
        (match["id"], observation[start : match.start()].strip()) for match, start in zip(tails, starts, strict=True)
    ]
