"""Names of held-out tasks in documents: what must not be learned before it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from turnwise.core.documents import Document
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.search_qa.corpus import read_fact
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.names import split_of
from turnwise_synthesis.documents.ledger import Ledger

_NAME = re.compile(r"[A-Z]\w*(?: [A-Z]\w*)*")


def list_heldout_names(family: EnvironmentFamily, count: int) -> frozenset[str]:
    """Return the entities of the held-out tasks `0 .. count - 1`: of generated worlds the held-out names in every
    passage that their searches can find, of a user's own questions the answers.

    Raises ConfigError for a family that has no passages."""
    if not isinstance(family, SearchQA):
        raise ConfigError(f"held-out entities are those of passages: environment.name is {type(family).__name__}")
    names: set[str] = set()
    seen: set[int] = set()
    for index in range(count):
        task = family.task("heldout", index)
        if task.payload["query"] is None:
            names |= set(task.payload["answers"])
            continue
        retriever = family.retriever(task)
        if id(retriever) in seen:
            continue
        seen.add(id(retriever))
        for passage in retriever.passages:
            fact = read_fact(passage.text)
            names |= {name for name in (passage.title, *(fact[1:] if fact else ())) if split_of(name) == "heldout"}
    return frozenset(names)


def drop_leaks(documents: Iterable[Document], names: frozenset[str], ledger: Ledger) -> list[Document]:
    """Return the documents that name none of the entities; the others are dropped and counted.

    A name is a whole run of capitalised words: "Mira Tavi Brandt" does not name Tavi Brandt."""
    kept = []
    for document in documents:
        said = (match[0] for text in list_texts(document) for match in _NAME.finditer(text))
        if found := next((name for name in said if name in names), None):
            kind = document.id.partition("/")[0]
            ledger.drop(kind, document.id, "held_out", found)
            ledger.kept[kind] -= 1
        else:
            kept.append(document)
    return kept


def list_texts(document: Document) -> Sequence[str]:
    """Return every text of a document that a person reads."""
    texts = [document.text]
    for message in document.messages:
        texts += [message.text, message.reasoning or "", *(call.arguments for call in message.tool_calls)]
    return [text for text in texts if text]
