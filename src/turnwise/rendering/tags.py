"""Search-R1's format: `<think>`, `<search>`, `<information>`, `<answer>` in running text, no chat template.

One conversation as tokens (each tag one token where the tokenizer has it):

    What is the author of Blue Lantern ?          opening, context
    <search> author of Blue Lantern </search>     reply 1, sampled
    <information> The author ... </information>   observation, context
    <answer> Mira Tolen </answer>                 reply 2, sampled
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnwise.core.types import IntArray, Message, TextPart, ToolCall, ToolCallError, ToolSpec, to_ids
from turnwise.rendering.tokenizer import encode_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TAG = re.compile(r"(</?(?:think|search|information|answer)>)")
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_SEARCH = re.compile(r"<search>(.*?)</search>", re.DOTALL)
_ANSWER = re.compile(r"<answer>.*?</answer>", re.DOTALL)

NO_ACTION = "no <search> or <answer> found; write <search> query </search> to search or <answer> answer </answer> to answer"


class TagRenderer:
    """Implements `core.protocols.Renderer`. Tools other than `search` cannot be called in this format."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_observation_tokens: int | None = None) -> None:
        """`max_observation_tokens` clips what a search returns, the closing tag always kept; None never clips."""
        self._tokenizer = tokenizer
        self._max_observation_tokens = max_observation_tokens
        vocabulary = tokenizer.get_vocab()
        self._special = {tag: vocabulary[tag] for tag in _TAG_NAMES if tag in vocabulary}
        ends = ("</search>", "</answer>")
        single = all(tag in self._special for tag in ends)
        eos = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
        self.stop_token_ids: tuple[int, ...] = eos + (tuple(self._special[tag] for tag in ends) if single else ())
        self.stop: tuple[str, ...] = () if single else ends

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """The texts of the messages, end to end. A tag in a prompt (the published instruction has some) is plain text."""
        return to_ids(encode_text(self._tokenizer, "".join(m.text for m in messages)) or [self._tokenizer.eos_token_id or 0])

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """Search results inside `<information>`; anything else as plain text. Text from outside never becomes a tag token."""
        ids: list[int] = []
        for message in observations:
            if message.role == "tool" and message.tool_call_id is not None:
                ids += self._information(message.text)
            else:
                ids += encode_text(self._tokenizer, f" {message.text.strip()} ")
        return to_ids(ids)

    def _information(self, text: str) -> list[int]:
        opening, closing = self._tags("<information>"), self._tags("</information>")
        body = encode_text(self._tokenizer, f" {text.strip()}")
        if self._max_observation_tokens is not None:
            body = body[: max(0, self._max_observation_tokens - len(opening) - len(closing))]
        return [*opening, *body, *closing]

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray) -> Message:
        """See `Renderer.parse`. The first complete `<search>` wins; `<answer>...</answer>` stays in the content."""
        text = self._tokenizer.decode(completion_ids.tolist(), skip_special_tokens=False)
        thoughts = [t.strip() for t in _THINK.findall(text)]
        visible = _THINK.sub("", text)
        search, answer = _SEARCH.search(visible), _ANSWER.search(visible)
        calls: tuple[ToolCall, ...] = ()
        errors: tuple[ToolCallError, ...] = ()
        content = visible
        if search and not (answer and answer.start() < search.start()):
            arguments = json.dumps({"query": search.group(1).strip()}, ensure_ascii=False)
            calls = (ToolCall(id=f"call_{len(prompt_ids)}", name="search", arguments=arguments),)
            content = visible[: search.start()]
        elif not answer:
            opened = "<search>" in visible or "<answer>" in visible
            errors = (ToolCallError(kind="unclosed" if opened else "no_action", raw=text, message=NO_ACTION),)
        return Message(
            role="assistant",
            content=(TextPart(text=content.strip()),),
            reasoning="\n".join(thoughts) if thoughts else None,
            tool_calls=calls,
            tool_errors=errors,
        )

    def encode_reply(self, message: Message) -> IntArray:
        """See `Renderer.encode_reply`: thinking, then content, then the search."""
        parts = [f"<think> {message.reasoning} </think>"] if message.reasoning is not None else []
        parts += [message.text] if message.text else []
        parts += [f"<search> {json.loads(call.arguments)['query']} </search>" for call in message.tool_calls]
        ids: list[int] = []
        for piece in _TAG.split("".join(parts)):
            if _TAG.fullmatch(piece):
                ids += self._tags(piece)
            elif piece:
                # The space before a closing tag is the tag's own in running text; dropping it saves a token per tag.
                ids += encode_text(self._tokenizer, piece.rstrip() if piece.strip() else "")
        return to_ids(ids)

    def _tags(self, tag: str) -> list[int]:
        return [self._special[tag]] if tag in self._special else encode_text(self._tokenizer, tag)


_TAG_NAMES = tuple(f"<{slash}{name}>" for name in ("think", "search", "information", "answer") for slash in ("", "/"))
