"""The check at start: good renderers pass, each way of being wrong is refused with the token that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import IntArray, Message, TextPart, ToolCall, ToolSpec, text_message, to_ids
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.stability import check_prefix_stable
from turnwise.rendering.tags import TagRenderer

ASK = (text_message("user", "Who wrote it?"),)
SEARCH = ToolSpec(
    name="search", description="Search.", parameters={"type": "object", "properties": {"query": {"type": "string"}}}
)
VISIT = ToolSpec(name="visit", description="Visit.", parameters={"type": "object", "properties": {}})
STOP = 0


def decode(ids: Sequence[int]) -> str:
    return "".join("#" if token == STOP else chr(token) for token in ids)


class CharacterRenderer:
    """One token per character, 0 ends a reply; a call is `name|arguments`. Faults are switched on by name."""

    stop_token_ids: tuple[int, ...] = (STOP,)
    stop: tuple[str, ...] = ()

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.opened = 0

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        self.opened += 1
        stamp = str(self.opened) if self.fault == "clock" else ""
        return to_ids([ord(c) for c in stamp + "".join(m.text for m in messages) + ">"])

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        text = "".join(m.text for m in observations) + ">"
        return to_ids([STOP if c == "#" and self.fault == "forgeable" else ord(c) for c in text])

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        text = decode(completion_ids.tolist()).removesuffix("#")
        if "|" not in text:
            return text_message("assistant", text)
        name, arguments = text.split("|", 1)
        call = ToolCall(
            id=f"call_{len(prompt_ids)}", name=name, arguments=arguments.upper() if self.fault == "lossy" else arguments
        )
        return Message(
            role="assistant",
            content=(),
            tool_calls=(call,),
            reasoning="added" if self.fault == "second encoding" else None,
        )

    def encode_reply(self, message: Message) -> IntArray:
        thought = "" if message.reasoning is None or self.fault != "second encoding" else f"{message.reasoning}~"
        if message.reasoning == "probe":
            raise RenderError("no thinking here")
        text = "".join(f"{c.name}|{c.arguments}" for c in message.tool_calls)
        return to_ids([*(ord(c) for c in thought + text + message.text), STOP])


class WholeRenderer(CharacterRenderer):
    """Also renders everything at once; forgets earlier calls when told to."""

    def render_all(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        ids: list[int] = []
        last_call = max(index for index, m in enumerate(messages) if m.tool_calls)
        for index, message in enumerate(messages):
            if message.role != "assistant":
                ids += [ord(c) for c in message.text + ">"]
            elif self.fault != "rewrites" or index == last_call:
                ids += self.encode_reply(message).tolist()
        return to_ids(ids)


@pytest.mark.parametrize("tools", [(), (SEARCH,)])
def test_the_renderers_of_turnwise_pass(
    tag_tokenizer: PreTrainedTokenizerBase,
    plain_tokenizer: PreTrainedTokenizerBase,
    chat_tokenizer: PreTrainedTokenizerBase,
    tools: Any,
) -> None:
    pairs: list[tuple[Renderer, PreTrainedTokenizerBase]] = [
        (TagRenderer(tag_tokenizer, max_observation_tokens=8), tag_tokenizer),
        (TagRenderer(plain_tokenizer), plain_tokenizer),
        (ChatRenderer(chat_tokenizer), chat_tokenizer),
        (ChatRenderer(chat_tokenizer, enable_thinking=False), chat_tokenizer),
    ]
    for renderer, tokenizer in pairs:
        check_prefix_stable(renderer, tokenizer.decode, ASK, tools)
        check_prefix_stable(renderer, tokenizer.decode, (text_message("system", "Be brief."), *ASK), tools)


def test_sound_renderers_pass() -> None:
    for renderer in (CharacterRenderer(), WholeRenderer()):
        check_prefix_stable(renderer, decode, ASK, [VISIT])


@pytest.mark.parametrize(
    ("renderer", "message"),
    [
        # "Who wrote it?>" is tokens 0-13, so the first call, which a full rendering forgets, begins at token 14.
        (WholeRenderer("rewrites"), r"at token 14 the turns gave 118 \('v'\), but a full rendering gives 110 \('n'\)"),
        (
            CharacterRenderer("clock"),
            r"at token 0 the turns gave 49 \('1'\), but opening the same conversation again gives 50 \('2'\)",
        ),
        (CharacterRenderer("forgeable"), "can forge control tokens"),
        (CharacterRenderer("lossy"), r"a reply changes when it is encoded and parsed.*renderer.kind"),
        (
            CharacterRenderer("second encoding"),
            r"token 0 the turns gave 118 \('v'\), but encoding the parsed reply again gives 97 \('a'\)",
        ),
    ],
)
def test_unsound_renderers_are_refused(renderer: Renderer, message: str) -> None:
    with pytest.raises(RenderError, match=message):
        check_prefix_stable(renderer, decode, ASK, [VISIT])


def test_a_tool_that_tags_cannot_call_is_refused(tag_tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(RenderError, match=r'visit.*renderer.kind="chat"'):
        check_prefix_stable(TagRenderer(tag_tokenizer), tag_tokenizer.decode, ASK, [VISIT])


def test_content_parts_are_one_text() -> None:
    parts = Message(role="user", content=(TextPart(text="Who "), TextPart(text="wrote it?")))
    check_prefix_stable(WholeRenderer(), decode, (parts,), [VISIT])
