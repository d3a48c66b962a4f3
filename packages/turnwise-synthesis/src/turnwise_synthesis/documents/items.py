"""Questions with the passages that answer them: of the search world, or of a user's own corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Message, Task, ToolSpec, text_message
from turnwise.environments.data_rows import load_file
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.retrieval import Retriever, WordRetriever
from turnwise_synthesis.documents.ledger import Ledger

TOP_K = 3
MAX_WORDS = 2000
"""Most words of a passage: a longer one would fill a document by itself."""
PROMPT = (
    "Search for what you need to know, then give the answer inside <answer> and </answer>, in a few words. "
    "Question: {question}\n"
)
SEARCH = ToolSpec(
    name="search",
    description="Search the corpus for passages that share words with a query.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to look for."}},
        "required": ["query"],
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question."""

    id: str
    question: str
    prompt: tuple[Message, ...]
    """What an agent is asked."""
    tools: tuple[ToolSpec, ...]
    answers: tuple[str, ...]
    evidence: tuple[Passage, ...]
    """Passages that the answer follows from, at least one."""
    search: Callable[[str], Sequence[Passage]]
    """What the agent's tool finds for a query."""
    task: Task | None = None
    """The task in its environment; None for an item of a corpus."""


def list_task_items(family: EnvironmentFamily, count: int, first: int, ledger: Ledger) -> list[Item]:
    """Return items of the training tasks `first .. first + count - 1`; those without evidence are counted.

    Raises ConfigError for a family that has no passages.
    """
    if not isinstance(family, SearchQA):
        raise ConfigError(
            f"first-order actions need passages: environment.name is {type(family).__name__}; use 'search_qa'"
        )
    items = []
    for index in range(first, first + count):
        task = family.task("train", index)
        retriever = family.retriever(task)
        passages = {passage.id: passage for passage in retriever.passages}
        evidence = tuple(passages[name] for name in task.payload["evidence"])
        if not evidence:
            ledger.drop("item", task.id, "no_evidence", task.payload["question"])
            continue
        items.append(
            Item(
                id=f"train/{index}",
                question=task.payload["question"],
                prompt=task.prompt,
                tools=(SEARCH,),
                answers=tuple(task.payload["answers"]),
                evidence=evidence,
                search=partial(_search, retriever, TOP_K),
                task=task,
            )
        )
    return items


def load_corpus_items(path: Path, ledger: Ledger, *, max_words: int = MAX_WORDS) -> list[Item]:
    """Return an item per row `{"id", "text", "question", "answers"[, "title"]}` of a corpus, searched as a whole.

    Empty, repeated and very long passages are dropped and counted, rows without a question only searched. Raises
    DataError naming file and line for a row of another form, and where no item is left.
    """
    kept: list[tuple[Passage, str, tuple[str, ...]]] = []
    texts: set[str] = set()
    for row in load_file(path, _read_row).rows:
        passage = row[0]
        words = passage.text.split()
        if not words:
            ledger.drop("passage", passage.id, "empty")
        elif len(words) > max_words:
            ledger.drop("passage", passage.id, "too_long", f"{len(words):,} words: {passage.text[:80]}")
        elif " ".join(words).lower() in texts:
            ledger.drop("passage", passage.id, "duplicate", passage.text)
        else:
            texts.add(" ".join(words).lower())
            kept.append(row)
    retriever = WordRetriever([passage for passage, _, _ in kept])
    items = [
        Item(
            id=passage.id,
            question=question,
            prompt=(text_message("user", PROMPT.format(question=question)),),
            tools=(SEARCH,),
            answers=answers,
            evidence=(passage,),
            search=partial(_search, retriever, TOP_K),
        )
        for passage, question, answers in kept
        if question
    ]
    if not items:
        raise DataError(f'{path}: no passage with a question is left; add rows with "question" and "answers"')
    return items


def _search(retriever: Retriever, top_k: int, query: str) -> Sequence[Passage]:
    return retriever.search(query, top_k)


def _read_row(row: dict[str, Any]) -> tuple[Passage, str, tuple[str, ...]]:
    name, text, title = row.get("id"), row.get("text"), row.get("title") or ""
    if not isinstance(name, str) or not isinstance(text, str) or not isinstance(title, str):
        raise DataError('a passage has "id" and "text", both strings, and perhaps "title"')
    question, answers = row.get("question") or "", row.get("answers") or []
    if not isinstance(question, str) or not isinstance(answers, list):
        raise DataError('"question" is a string and "answers" a list of strings')
    if question and not (answers and all(isinstance(each, str) and each.strip() for each in answers)):
        raise DataError('a question needs "answers": a list with at least one string that is not empty')
    return Passage(name, title, text), question.strip(), tuple(answers)
