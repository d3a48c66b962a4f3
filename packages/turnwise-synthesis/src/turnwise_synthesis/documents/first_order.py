"""First-order actions (FAS, AgentFounder, arXiv 2509.13310): the first search on a question, and the way from passages
to its answer. No tool is called.

Deviations: the paper's filter of plans is a model that judges, ours searches once and looks for the evidence; its
reasoning is written twice, without and with the knowledge, ours once, with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from turnwise.core.documents import Document
from turnwise.core.errors import EngineError, EnvironmentFault, RewardError
from turnwise.core.messages import TextPart
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.policies import search_message
from turnwise_synthesis.documents.checks import check_plan, check_reasoning, find_answer
from turnwise_synthesis.documents.items import Item
from turnwise_synthesis.documents.ledger import Ledger, Reason
from turnwise_synthesis.documents.writers import Draft, ItemWriter

PLAN, REASON = "plan", "reason"
MAX_AT_ONCE = 16
"""Most drafts that are asked for at once."""


async def build_plans(
    items: Sequence[Item], writer: ItemWriter, ledger: Ledger, *, seed: int, plans: int = 1
) -> list[Document]:
    """Return the plans that are kept, `plans` tries for each item: the question, then a search that finds evidence.

    What is dropped is in the ledger, with its reason."""

    async def write(item: Item, number: int) -> Draft:
        return await writer.plan(item, seed=derive_seed(seed, PLAN, item.id, number))

    work = [(item, number) for item in items for number in range(plans)]
    return await _build(PLAN, work, write, check_plan, _to_plan, ledger)


async def build_reasonings(
    items: Sequence[Item], writer: ItemWriter, ledger: Ledger, *, seed: int, tries: int = 1
) -> list[Document]:
    """Return the reasonings that are kept, `tries` for each item: the question with passages, then the answer."""

    def shown(item: Item) -> list[Passage]:
        return gather_passages(item, seed)

    async def write(item: Item, number: int) -> Draft:
        return await writer.reason(item, shown(item), seed=derive_seed(seed, REASON, item.id, number))

    def to_document(item: Item, draft: Draft, number: int) -> Document:
        prompt = add_passages(item.prompt, shown(item))
        answer = find_answer(draft.action, item.answers)
        assert answer is not None, "it was checked"
        reply = answer_message(answer, reasoning=draft.thought or None)
        return Document(id=f"{REASON}/{item.id}/{number}", messages=(*prompt, reply), tools=item.tools)

    work = [(item, number) for item in items for number in range(tries)]
    return await _build(REASON, work, write, check_reasoning, to_document, ledger)


def gather_passages(item: Item, seed: int) -> list[Passage]:
    """Return the evidence and what a search for the question finds, each once, in random order."""
    passages = {each.id: each for each in (*item.evidence, *item.search(item.question))}
    shown = list(passages.values())
    rng(seed, "passages", item.id).shuffle(shown)
    return shown


def add_passages(prompt: Sequence[Message], passages: Sequence[Passage]) -> tuple[Message, ...]:
    """Return the prompt with the passages after its last text, one per line."""
    *before, last = prompt
    text = last.text if last.text.endswith("\n") else f"{last.text}\n"
    text += "".join(f"{passage.text}\n" for passage in passages)
    return (*before, replace(last, content=(*last.images, TextPart(text=text))))


def _to_plan(item: Item, draft: Draft, number: int) -> Document:
    call = replace(search_message(draft.action, 0), reasoning=draft.thought or None)
    return Document(id=f"{PLAN}/{item.id}/{number}", messages=(*item.prompt, call), tools=item.tools)


async def _build(
    kind: str,
    work: Sequence[tuple[Item, int]],
    write: Callable[[Item, int], Awaitable[Draft]],
    check: Callable[[Draft, Item], Reason | None],
    to_document: Callable[[Item, Draft, int], Document],
    ledger: Ledger,
) -> list[Document]:
    """Write, check and keep, in the order of the work whatever comes back first."""
    places = asyncio.Semaphore(MAX_AT_ONCE)

    async def draft_one(item: Item, number: int) -> Draft | str:
        async with places:
            try:
                return await write(item, number)
            except (EngineError, EnvironmentFault, RewardError) as problem:
                return str(problem)

    documents = []
    drafts = await asyncio.gather(*(draft_one(item, number) for item, number in work))
    for (item, number), draft in zip(work, drafts, strict=True):
        if isinstance(draft, str):
            ledger.drop(kind, item.id, "failed", draft)
            continue
        tokens = {"prompt_tokens": draft.prompt_tokens, "reply_tokens": draft.reply_tokens}
        ledger.count(kind, **tokens, seconds=draft.seconds)
        if (reason := check(draft, item)) is not None:
            ledger.drop(kind, item.id, reason, draft.refusal or draft.text)
        elif (kept := ledger.keep(kind, to_document(item, draft, number))) is not None:
            documents.append(kept)
    return documents
