"""Choose a renderer for a model (`renderer.kind = "auto"`), and say why in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from turnwise.core.errors import TurnwiseError, boundary
from turnwise.core.types import Message, ToolCall, ToolSpec, text_message
from turnwise.rendering.calls import CALLS_FORMAT
from turnwise.rendering.tags import FORMATS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Format = Literal["search_r1", "retool", "shell"]
Calls = Literal["hermes", "fenced", "react", "llama", "mistral", "qwen_coder", "deepseek_v3", "deepseek_v31"]
CallsOption = Literal[
    "auto", "hermes", "fenced", "react", "llama", "mistral", "qwen_coder", "deepseek_v3", "deepseek_v31"
]
_FORMATS: tuple[Format, ...] = ("search_r1", "retool", "shell")


@dataclass(frozen=True, slots=True, kw_only=True)
class RendererChoice:
    """A renderer by name, with the fields of the recipe that it reads."""

    kind: Literal["tags", "calls", "chat", "template"]
    format: Format = "search_r1"
    """Used by "tags"."""
    name: str = "qwen3"
    """Used by "chat"."""
    calls: Calls = "hermes"
    """Used by "template"."""
    why: str = ""
    """One line for people; empty if the recipe names the kind."""


def choose_renderer(
    tools: Sequence[ToolSpec],
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    calls: CallsOption = "auto",
    sees: bool = False,
) -> RendererChoice:
    """Choose by the tools if `tokenizer` is None (a model from random weights), else by the tokenizer.

    A model from random weights gets tags if they can call every tool, else lines of calls. A checkpoint keeps the
    format whose tags are its tokens (Turnwise trained it); or gets the chat renderer that produces the same tokens as
    its chat template; or its chat template with tools as text; or, without one, plain text. `calls` is the recipe's
    `renderer.calls`; `sees` says that the model reads pictures, which chat renderers do not write.
    """
    if tokenizer is None:
        return _choose_for_random_weights(tools)
    tokens = tokenizer.get_added_vocab()
    for form in _FORMATS:
        if all(tag in tokens for tag in FORMATS[form].tags):
            return RendererChoice(kind="tags", format=form, why=f'tags, format="{form}": the tokenizer has its tags')
    if all(tag in tokens for tag in CALLS_FORMAT.tags):
        return RendererChoice(kind="calls", why="calls: the tokenizer has the tags of its blocks")
    written = resolve_calls(calls, tokenizer)
    if not tokenizer.chat_template:
        why = f'template, calls="{written}": the tokenizer has no chat template, so turns are plain text'
        return RendererChoice(kind="template", calls=written, why=why)
    name = find_chat_renderer(tokenizer) if calls == "auto" and not sees else None
    if name is not None:
        why = f'chat, name="{name}": it gives the same tokens as the chat template'
        return RendererChoice(kind="chat", name=name, why=why)
    alike = "it writes pictures" if sees else "no chat renderer gives the same tokens"
    reason = alike if calls == "auto" else "renderer.calls is set"
    why = f'template, calls="{written}": the model\'s own chat template, since {reason}'
    return RendererChoice(kind="template", calls=written, why=why)


def _choose_for_random_weights(tools: Sequence[ToolSpec]) -> RendererChoice:
    offered = {(tool.name, tuple(tool.properties)) for tool in tools}
    names = ", ".join(sorted({tool.name for tool in tools})) or "none"
    for form in _FORMATS:
        if offered <= {(FORMATS[form].tool, (FORMATS[form].argument,))}:
            why = f'tags, format="{form}": random weights, and the tags can call every tool ({names})'
            return RendererChoice(kind="tags", format=form, why=why)
    return RendererChoice(kind="calls", why=f"calls: random weights, and tools that tags cannot call ({names})")


def resolve_calls(calls: CallsOption, tokenizer: PreTrainedTokenizerBase | None) -> Calls:
    """Return `renderer.calls` with "auto" replaced: ReAct if a tokenizer has no chat template (or is yet to be
    trained), else hermes."""
    if calls == "auto":
        return "hermes" if tokenizer is not None and tokenizer.chat_template else "react"
    return calls


def find_chat_renderer(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Find the first renderer of the `renderers` package that renders probe conversations as the chat template does.

    None if there is none. The name of the model is ignored, so that a checkpoint of a run gets the same renderer as the
    model that the run began with.
    """
    from renderers.base import MODEL_RENDERER_MAP

    return next((name for name in dict.fromkeys(MODEL_RENDERER_MAP.values()) if _agrees(tokenizer, name)), None)


_TOOL = ToolSpec(
    name="search",
    description="Search the library.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
_ASK = text_message("user", "Who wrote Blue Lantern?")
_CALL = Message(
    role="assistant",
    content=(),
    tool_calls=(ToolCall(id="call_0", name="search", arguments='{"query": "Blue Lantern"}'),),
)
_RESULT = text_message("tool", "Mira Tolen", tool_call_id="call_0", name="search")
_PROBES: tuple[tuple[tuple[Message, ...], tuple[ToolSpec, ...]], ...] = (
    ((_ASK,), ()),
    ((text_message("system", "Be brief."), _ASK), (_TOOL,)),
    ((_ASK, _CALL, _RESULT), (_TOOL,)),
)


def _agrees(tokenizer: PreTrainedTokenizerBase, name: str) -> bool:
    from turnwise.rendering.chat import ChatRenderer

    try:
        renderer = ChatRenderer(tokenizer, name=name)
        for messages, tools in _PROBES:
            chat = [renderer.to_chat(message) for message in messages]
            ids = renderer.render_all(messages, tools).tolist()
            if ids not in [_apply(tokenizer, spelled, tools) for spelled in (chat, _spell_arguments(chat))]:
                return False
    except TurnwiseError:
        return False
    return True


def _apply(
    tokenizer: PreTrainedTokenizerBase, chat: Sequence[dict[str, Any]], tools: Sequence[ToolSpec]
) -> list[int] | None:
    """Return token ids by the chat template; None if it refuses the conversation."""
    from turnwise.rendering.chat import to_specs

    try:
        with boundary(TurnwiseError, "the chat template refuses a probe"):
            ids = tokenizer.apply_chat_template(
                list(chat), tools=to_specs(tools) or None, add_generation_prompt=True, tokenize=True, return_dict=False
            )
            return list(ids)
    except TurnwiseError:
        return None


def _spell_arguments(chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the arguments of calls as JSON text, which some templates expect."""
    return [
        {**message, "tool_calls": [{**call, "function": _spell(call["function"])} for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in chat
    ]


def _spell(function: dict[str, Any]) -> dict[str, Any]:
    return {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}
