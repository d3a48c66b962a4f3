"""Who writes: a scripted policy, or a model behind an engine or an API."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, text_message
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.policies import search_message
from turnwise.judging.text import Writer as TextWriter
from turnwise_synthesis.documents.items import Item

_ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)
_LINE = re.compile(r"^\W*(thought|reasoning|search|answer)\W*:\s*(.*?)\s*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a writer wrote, before any filter."""

    text: str
    """All of it."""
    thought: str = ""
    action: str = ""
    """The query of a plan, or the answer of a reasoning; empty if there is none."""
    refusal: str = ""
    is_cut: bool = False
    prompt_tokens: int = 0
    reply_tokens: int = 0
    seconds: float = 0.0


class ItemWriter(Protocol):
    """Writes about items. Raises what its engine or API raises."""

    async def plan(self, item: Item, *, seed: int) -> Draft:
        """Return the first action on a question: what is missing, and the query that looks for it."""
        ...

    async def reason(self, item: Item, passages: Sequence[Passage], *, seed: int) -> Draft:
        """Return the way from passages to the answer."""
        ...


@dataclass(frozen=True, slots=True)
class ScriptedWriter:
    """Implements `ItemWriter` with a policy of the item's family, at no cost."""

    policy: ScriptedPolicy
    thinks: bool = True
    """Whether a reasoning restates the sentences that it follows from."""

    async def plan(self, item: Item, *, seed: int) -> Draft:
        """See `ItemWriter.plan`."""
        return self._reply(item, list(item.prompt), seed, wants="search")

    async def reason(self, item: Item, passages: Sequence[Passage], *, seed: int) -> Draft:
        """See `ItemWriter.reason`: the policy sees the passages as the result of a search for the question."""
        call = search_message(item.question, 0)
        shown = "".join(f"{passage.text}\n" for passage in passages)
        found = text_message("tool", shown, tool_call_id=call.tool_calls[0].id, name="search")
        draft = self._reply(item, [*item.prompt, call, found], seed, wants="answer")
        if not self.thinks or not draft.action:
            return draft
        thought = " ".join(passage.text for passage in item.evidence)
        return Draft(text=f"{thought} {draft.text}", thought=thought, action=draft.action)

    def _reply(self, item: Item, messages: Sequence[Message], seed: int, *, wants: str) -> Draft:
        assert item.task is not None, "a scripted policy needs the task of its family"
        reply = self.policy.reply(item.task, messages, Random(seed))
        kind, action = describe_action(reply)
        return Draft(text=f"{kind} {action}", action=action if kind == wants else "")


def describe_action(message: Message) -> tuple[str, str]:
    """Return a reply's action in words: the tool and its arguments, or "answer" and the answer."""
    if message.tool_calls:
        call = message.tool_calls[0]
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = call.arguments
        values = arguments.values() if isinstance(arguments, dict) else [arguments]
        return call.name, " ".join(map(str, values))
    answer = _ANSWER.search(message.text)
    return "answer", answer[1] if answer else message.text.strip()


PLAN = (
    "Write the first web search for each question. A search names what is asked about and never guesses the answer.\n\n"
    "Question: Who wrote the novel Moby-Dick?\n"
    "Search: author of the novel Moby-Dick\n\n"
    "Question: In which country is Mount Fuji?\n"
    "Search: Mount Fuji country\n\n"
    "Question: {question}\n"
    "Search:"
)
REASON = (
    "Answer each question from the passages above it.\n\n"
    "Moby-Dick is a novel by Herman Melville.\n"
    "Mount Fuji is a volcano in Japan.\n"
    "Question: Who wrote the novel Moby-Dick?\n"
    "Reasoning: The passage says that Moby-Dick is a novel by Herman Melville.\n"
    "Answer: Herman Melville\n\n"
    "{passages}\n"
    "Question: {question}\n"
    "Reasoning:"
)
"""Both show what a small model needs to see: examples, and the line that is asked for begun."""


@dataclass(frozen=True, slots=True)
class ModelWriter:
    """Implements `ItemWriter` with a model, by prompts and lines that are read back."""

    writer: TextWriter

    async def plan(self, item: Item, *, seed: int) -> Draft:
        """See `ItemWriter.plan`."""
        return await self._write(PLAN.format(question=item.question), "search", seed)

    async def reason(self, item: Item, passages: Sequence[Passage], *, seed: int) -> Draft:
        """See `ItemWriter.reason`."""
        shown = "\n".join(passage.text for passage in passages)
        return await self._write(REASON.format(passages=shown, question=item.question), "answer", seed)

    async def _write(self, prompt: str, wants: str, seed: int) -> Draft:
        started = time.perf_counter()
        written = await self.writer.write(text_message("user", prompt), None, seed=seed)
        lines = _read_lines(prompt, written.text)
        thought, action = lines.get("thought") or lines.get("reasoning") or "", lines.get(wants, "")
        if wants == "answer" and not action:  # a small model says it in its sentence, or not at all
            action = thought
        return Draft(
            text=written.text,
            thought=thought,
            action=action.strip("\"'` "),
            refusal=written.refusal,
            is_cut=written.is_cut and wants not in lines,
            prompt_tokens=written.usage.prompt_tokens,
            reply_tokens=written.usage.reply_tokens,
            seconds=time.perf_counter() - started,
        )


def _read_lines(prompt: str, text: str) -> dict[str, str]:
    """Return the labelled lines of a reply; the first line has the label that the prompt ends with, unless it repeats
    one."""
    text = text.strip()
    if text and not _LINE.match(text):
        text = f"{prompt[prompt.rindex(chr(10)) + 1 :]} {text}"
    lines: dict[str, str] = {}
    for match in _LINE.finditer(text):
        lines.setdefault(match[1].lower(), match[2])
    return lines
