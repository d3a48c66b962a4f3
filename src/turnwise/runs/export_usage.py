"""How an exported policy is asked: the opening of its run, the request that gives it, and the check that a server's
tokens are the run's."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from turnwise.config.run import RunConfig
from turnwise.core.errors import RenderError, TurnwiseError, boundary
from turnwise.core.messages import list_images
from turnwise.core.protocols import EnvironmentFamily, Opening, Renderer
from turnwise.environments.mixture import list_families
from turnwise.exchange.conversations import tool_to_json
from turnwise.exchange.sft_rows import to_chat_message
from turnwise.rendering.serving import build_serving_template
from turnwise.runs.openings import open_task, take_task

USAGE = "turnwise_usage.json"
"""The opening and the request, in the exported folder."""
NUM_OPENINGS = 3
"""Training tasks whose openings are compared: what they share is the run's, the rest is a task's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a person who serves the policy has to know."""

    openings: Sequence[Opening]
    """Of the first training tasks; empty where the environment does not open."""
    system: str | None
    """The system message that all of them have; None where there is none, or each task has another."""
    problem: str = ""
    """Why there are no openings; empty where there are."""

    @property
    def tools(self) -> tuple[Any, ...]:
        """Those of the first task."""
        return self.openings[0].tools if self.openings else ()


def read_usage(family: EnvironmentFamily) -> Usage:
    """The openings of a family's first training tasks, of a mixture's those of its first family."""
    try:
        with ThreadPoolExecutor(1) as pool:  # a loop may be running in this thread
            openings = pool.submit(asyncio.run, _open_first(next(iter(list_families(family))))).result()
    except TurnwiseError as problem:
        return Usage(openings=(), system=None, problem=f"the environment cannot be opened here: {problem}")
    systems = {each.messages[0].text if each.messages[0].role == "system" else None for each in openings}
    return Usage(openings=openings, system=systems.pop() if len(systems) == 1 else None)


async def _open_first(family: EnvironmentFamily) -> list[Opening]:
    openings: list[Opening] = []
    for index in range(NUM_OPENINGS):
        try:
            task = take_task(family, "train", index, f"there are {index} training tasks")
        except TurnwiseError:
            if openings:
                break
            raise
        openings.append(await open_task(family, task))
    return openings


def complete_template(tokenizer: PreTrainedTokenizerBase, renderer: Renderer, usage: Usage) -> None:
    """Give the tokenizer the chat template that opens conversations as the run does."""
    template = build_serving_template(tokenizer, renderer, system=usage.system, tools=usage.tools)
    if template is not None:
        tokenizer.chat_template = template


def check_served(tokenizer: PreTrainedTokenizerBase, renderer: Renderer, usage: Usage) -> str:
    """One line: whether the exported chat template gives the run's tokens for its openings, with and without the
    system message, or what differs first."""
    if not usage.openings:
        return f"not checked: {usage.problem}"
    if any(list_images(opening.messages) for opening in usage.openings):
        return "not checked: the openings show pictures, which a server lays out itself"
    for opening in usage.openings:
        expected = renderer.open(opening.messages, opening.tools).tolist()
        ways = [opening.messages]
        if usage.system is not None:
            ways.append(opening.messages[1:])
        for messages in ways:
            try:
                found = _serve(tokenizer, messages, opening)
            except RenderError as problem:
                return f"differs: {problem}"
            if found != expected:
                return f"differs: {_describe_difference(tokenizer, found, expected)}"
    return f"same: the chat template opens {len(usage.openings)} training tasks with the tokens of the run"


def _serve(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Any], opening: Opening) -> list[int]:
    """What a server makes of a request."""
    with boundary(RenderError, "the exported chat template refuses the opening"):
        ids = tokenizer.apply_chat_template(
            [to_chat_message(message, as_text=False) for message in messages],
            tools=[tool_to_json(tool) for tool in opening.tools] or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
    return list(ids)


def _describe_difference(tokenizer: PreTrainedTokenizerBase, found: Sequence[int], expected: Sequence[int]) -> str:
    pairs = enumerate(zip_longest(found, expected))
    at = next(index for index, (left, right) in pairs if left != right)
    served, own = (repr(tokenizer.decode(list(ids[at : at + 12]))) for ids in (found, expected))
    return f"at token {at} the chat template gives {served} but the run {own}; send token ids from the run's renderer"


def to_usage_json(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, renderer: Renderer, usage: Usage, check: str
) -> dict[str, Any]:
    """The usage file: the request of a first turn, the text and tokens that it must give, and the check."""
    table: dict[str, Any] = {"renderer": config.renderer.kind, "check": check}
    if not usage.openings:
        return table
    opening = usage.openings[0]
    ids = renderer.open(opening.messages, opening.tools).tolist()
    request: dict[str, Any] = {
        "messages": [to_chat_message(message, as_text=False) for message in opening.messages],
        "temperature": config.rollout.temperature,
        "max_tokens": config.rollout.max_turn_tokens,
        "stop_token_ids": list(renderer.stop_token_ids),
        "skip_special_tokens": False,
    }
    if opening.tools:
        request["tools"] = [tool_to_json(tool) for tool in opening.tools]
    if renderer.stop:
        request |= {"stop": list(renderer.stop), "include_stop_str_in_output": True}
    return table | {"request": request, "prompt": tokenizer.decode(ids), "prompt_token_ids": ids}


def describe_usage(table: Mapping[str, Any], usage: Usage) -> str:
    """The section of the card on how the policy is asked."""
    if "request" not in table:
        return f"This folder does not say how a conversation opens: {usage.problem}."
    if usage.system is not None:
        system = "The chat template contains the run's system message: a request without one gets it."
    elif usage.openings[0].messages[0].role == "system":
        system = "Each task has its own system message; the first one is shown, and requests must send theirs."
    else:
        system = "The run has no system message: the policy's instructions are in the user message."
    tools = ", ".join(f"`{tool.name}`" for tool in usage.tools)
    offered = f" Tools of the run: {tools}; send them as `tools`." if tools else " The run has no tools."
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", table["prompt"])), default=0))
    return f"""The policy was trained on conversations that open as below, and answers well only those. `{USAGE}` has
the request for an OpenAI-style server (its `stop_token_ids` and `skip_special_tokens` are vLLM's), and the token ids
that it must give. {system}{offered}

{fence}
{table["prompt"]}
{fence}

Served against run: {table["check"]}."""


def write_usage(table: Mapping[str, Any]) -> str:
    """The text of the usage file."""
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def read_check(folder: Path) -> str:
    """What the check of an exported folder said, in one line."""
    table: dict[str, Any] = json.loads((folder / USAGE).read_text(encoding="utf-8"))
    return str(table["check"])
