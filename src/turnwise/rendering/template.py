"""Renders any chat model by its own chat template, with tools as text: for templates without tools or with other calls.

The template renders a conversation's opening. The text it writes between turns was read from it once
(`template_turns`), so that later turns append; the text of a reply is never rendered again. One conversation in
SmolLM2's template:

    <|im_start|>system\\nYou can call tools. ...<|im_end|>\\n                        opening, context
    <|im_start|>user\\nWho wrote Blue Lantern?<|im_end|>\\n<|im_start|>assistant\\n
    <tool_call>\\n{"name": "search", "arguments": {...}}\\n</tool_call><|im_end|>   reply, sampled
    \\n<|im_start|>user\\n<tool_response>\\nMira Tolen\\n</tool_response><|im_end|>\\n  extension, context
    <|im_start|>assistant\\n

Where the boundary between turns is a token, outside text cannot forge it. Where it is plain text (`User:`), any text
can look like it, and only tokens are kept apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from turnwise.core.errors import RenderError
from turnwise.core.types import IntArray, Message, ToolCall, ToolSpec, reply_message, to_ids
from turnwise.rendering.call_texts import CALL_TEXTS, describe_tool
from turnwise.rendering.chat import to_specs
from turnwise.rendering.chat_template import ChatMessage, ChatTemplate
from turnwise.rendering.fences import Fences
from turnwise.rendering.hermes_calls import CLOSING, OPENING
from turnwise.rendering.images import cut_text, map_texts, write_text
from turnwise.rendering.template_turns import MODEL_MARKS, read_turns
from turnwise.rendering.tokenizer import added_tokens_pattern, encode_text, find_opening_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARKS = frozenset(MODEL_MARKS)
_THOUGHT_MARKS = re.compile(r"</?think>|\s+")
_THOUGHT = re.compile(r"\s*<think>(.*?)(?:</think>|\Z)", re.DOTALL)


class TemplateRenderer:
    """Implements `core.protocols.Renderer`; `render_all` renders a whole conversation for the check at the start."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        calls: str = "hermes",
        ends: Sequence[int] = (),
        max_observation_tokens: int | None = None,
        marker: str | None = None,
    ) -> None:
        """Take a tokenizer with a chat template; one without gets `User:` and `Assistant:` in plain text.

        `calls` is the format of calls (`call_texts`). If the template describes tools and writes calls in exactly that
        format, the tools are passed to it; otherwise the system message explains them. `ends` are further tokens that
        end a reply (`ends.read_end_ids`). `max_observation_tokens` limits the text of one observation; None: no limit.
        `marker` is what a picture is encoded as outside the template (`core.pictures.PictureLayout`); None refuses
        pictures.
        Raises RenderError when the template cannot be extended.
        """
        self._tokenizer = tokenizer
        self._fences = Fences(tokenizer, marker)
        self._template = ChatTemplate(tokenizer)
        self._format = CALL_TEXTS[calls]
        self._max_observation_tokens = max_observation_tokens
        eos = None if tokenizer.eos_token_id is None else str(tokenizer.convert_ids_to_tokens(tokenizer.eos_token_id))
        self._turns = turns = read_turns(
            self._template.render,
            added_tokens=added_tokens_pattern(tokenizer),
            eos=eos,
            write_call=lambda name, arguments: self._format.write(
                ToolCall(id="call_0", name=name, arguments=arguments)
            ),
        )
        own = [int(tokenizer.convert_tokens_to_ids(turns.end)), tokenizer.eos_token_id]
        all_ends = [int(token) for token in (*own, *ends) if token is not None]
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys(all_ends))
        self._texts_of_ends = {token: self._decode([token]) for token in ends if token not in own}
        # A chat template writes the first token itself.
        self._opening = [] if tokenizer.chat_template else find_opening_ids(tokenizer)
        # If plain text begins the next turn, a model that was not trained on the end token continues with that text.
        self._next_turn = turns.user.before.rstrip() if turns.adds_end else ""
        self.stop: tuple[str, ...] = (*((self._next_turn,) if self._next_turn else ()), *self._format.stop)
        # A text that begins as templates begin replies loses that beginning.
        self.call_marks = None if turns.lead.strip() else self._format.begins
        """Characters with which a call or a thought may begin in a reply's text; None if any character may."""
        self.notes = turns.notes
        """What a person should know about the template, one clause each."""
        prompt = turns.user.after
        last = list(added_tokens_pattern(tokenizer).finditer(prompt))
        self._prompt_end = prompt[last[-1].start() :] if last else prompt
        """The end of every prompt, which a reply's first token follows."""

    # -------------------------------------------------------------------------------------------- prompts

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """See `Renderer.open`. Raises RenderError when the template refuses the messages."""
        return self.render_all(messages, tools)

    def render_all(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """Return the token ids of a whole conversation rendered at once, generation prompt included.

        Replies are inserted after the template has run, so that it cannot remove their thoughts, and are encoded
        separately: no token joins the end of a prompt to the start of a reply.
        """
        turns, native = self._turns, self._turns.native_tools and bool(tools)
        chat = self._to_chat(messages, "" if native else self._describe(tools))
        text = self._template.render(chat, tools=self._fences.fence_all(to_specs(tools)) if native else ())
        before_reply = turns.user.after.removesuffix(turns.prefill)
        ids: list[int] = []  # without the opening ids, which are not text
        for number, message in enumerate(messages):
            if message.role != "assistant":
                continue
            before, after = text.split(_mark(number), 1)
            start = before.rfind(before_reply) + len(before_reply)
            # What the template writes in place of the thoughts that it does not see was not sampled.
            written = before[start:].removeprefix(turns.lead)
            context = (before if _THOUGHT_MARKS.sub("", written) else before[:start]) + turns.prefill
            ids += self._encode_after(turns.end, context) if ids else self._fences.encode(context)
            ids += self.encode_reply(message).tolist()
            text = after if turns.adds_end else after.removeprefix(turns.trail + turns.end)
        rest = self._encode_after(turns.end, text) if ids else self._fences.encode(text)
        return to_ids([*self._opening, *ids, *rest])

    def _to_chat(self, messages: Sequence[Message], explanation: str) -> list[ChatMessage]:
        """Return the template's messages: one system text or none, then turns of user (or tool) and assistant."""
        systems = [self._fences.fence_message(message) for message in messages if message.role == "system"]
        system = "\n\n".join(text for text in (*systems, explanation) if text)
        chat: list[ChatMessage] = []
        if system and self._turns.has_system:
            chat.append({"role": "system", "content": system})
        elif system:
            chat.append({"role": "user", "content": system})
        separator = "\n\n"
        for number, message in enumerate(messages):
            if message.role == "system":
                continue
            if message.role == "assistant":
                chat.append({"role": "assistant", "content": _mark(number)})
                separator = "\n"
            elif message.role == "tool" and self._turns.tool:
                chat.append(
                    {
                        "role": "tool",
                        "content": self._observe(message, marked=False),
                        "name": self._fences.fence(message.name or "tool"),
                        "tool_call_id": message.tool_call_id or "call_0",
                    }
                )
            else:
                content = self._observe(message, marked=message.role == "tool")
                if chat and chat[-1]["role"] == "user":
                    chat[-1] = {"role": "user", "content": chat[-1]["content"] + separator + content}
                else:
                    chat.append({"role": "user", "content": content})
        return chat

    def _describe(self, tools: Sequence[ToolSpec]) -> str:
        if not tools:
            return ""
        fence = self._fences.fence
        arguments = [fence(str(key)) for key in tools[0].properties]
        return self._format.describe([fence(describe_tool(tool)) for tool in tools], fence(tools[0].name), arguments)

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """See `Renderer.extend`. Closes a reply that was cut before its end."""
        turns = self._turns
        as_tools = turns.tool is not None and all(message.role == "tool" for message in observations)
        slot = turns.tool if as_tools and turns.tool else turns.user
        texts = [self._observe(message, marked=message.role == "tool" and not as_tools) for message in observations]
        texts = texts if as_tools else ["\n".join(texts)]
        rest = slot.before + slot.between.join(text.strip() if slot.trims else text for text in texts) + slot.after
        last = int(completion_ids[-1]) if len(completion_ids) else None
        if last in self._texts_of_ends:
            # Such a token may be the one that begins the next turn (GLM's `<|user|>`).
            end = self._texts_of_ends[last]
            return to_ids(self._encode_after(end, rest.removeprefix(end)))
        if last in self.stop_token_ids:
            return to_ids(self._encode_after(turns.end, rest))
        written = self._decode(completion_ids[-64:]) if self._next_turn else ""
        if self._next_turn in written and self._next_turn:
            return to_ids(self._encode_after(self._next_turn, rest.removeprefix(self._next_turn)))
        closing = self._fences.encode(turns.trail + turns.end, continues=True)
        return to_ids([*closing, *self._encode_after(turns.end, rest)])

    def _observe(self, message: Message, *, marked: bool) -> str:
        """Return the text of an observation, cut and fenced; `marked` puts a tool's result between marks."""
        text, most = write_text(message), self._max_observation_tokens
        if most is not None and message.role == "tool":
            text = cut_text(text, most, partial(encode_text, self._tokenizer), self._decode)
        head, tail = self._format.result if marked else ("", "")
        return head + map_texts(text, self._fences.fence) + tail

    # -------------------------------------------------------------------------------------------- replies

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        """See `Renderer.parse`. A `<think>` at the start becomes `reasoning`; an unclosed one is all reasoning."""
        text = self._decode([token for token in completion_ids.tolist() if token not in self.stop_token_ids])
        if self._next_turn:
            text = text.split(self._next_turn, 1)[0]
        lead = self._turns.lead.strip()
        if lead and "think>" not in lead:
            text = text.strip().removeprefix(lead)
        if self._opens_thought:
            text = "<think>" + text
        reasoning = None
        if match := _THOUGHT.match(text):
            reasoning, text = match[1].strip() or None, text[match.end() :]
        content, calls, errors = self._format.read(text, len(prompt_ids), tools)
        return reply_message(
            content,
            reasoning=reasoning,
            tool_calls=calls,
            tool_errors=errors,
        )

    def encode_reply(self, message: Message) -> IntArray:
        """See `Renderer.encode_reply`: thoughts, then content, then the calls, and the token that ends a reply.

        Raises RenderError for what the format cannot express.
        """
        text = self._write_reply(message) + self._turns.trail + self._turns.end
        return to_ids(self._encode_after(self._prompt_end, text))

    @property
    def _opens_thought(self) -> bool:
        """Whether every reply begins inside a thought."""
        return "<think>" in self._turns.user.after and "</think>" not in self._turns.user.after

    def _write_reply(self, message: Message) -> str:
        """Return the text of a reply, fenced; its marks for calls and thoughts are tokens if the tokenizer has them."""
        fence, lead = self._fences.fence, self._turns.lead
        if message.reasoning is not None:
            if "</think>" in message.reasoning or "</think>" in self._turns.user.after:
                raise RenderError(
                    "the reasoning of a reply cannot be written: it contains </think>, or the chat template switches "
                    "thinking off; drop the message's reasoning"
                )
            opening = "" if self._opens_thought else "<think>\n"
            head = "" if "think>" in lead else lead
            head += f"{opening}{fence(message.reasoning.strip())}\n</think>\n\n"
        else:
            head = lead + ("</think>\n\n" if self._opens_thought and "</think>" not in lead else "")
        content = message.text.strip()
        if any(stop in f"\n{content}" for stop in self.stop):
            raise RenderError(
                f"a reply cannot contain {' or '.join(map(repr, self.stop))}, where sampling stops; remove it from the "
                "message, or choose another renderer.calls"
            )
        written = [self._write_call(call) for call in message.tool_calls]
        return head + "\n".join([*([fence(content, _MARKS.union(self._format.marks))] if content else []), *written])

    def _write_call(self, call: ToolCall) -> str:
        """Return the call with the marks of its format as tokens, and everything else as plain text."""
        text, fence = self._format.write(call), self._fences.fence
        if text.startswith(OPENING) and text.endswith(CLOSING):
            return OPENING + fence(text.removeprefix(OPENING).removesuffix(CLOSING)) + CLOSING
        return fence(text, frozenset(self._format.marks))

    # -------------------------------------------------------------------------------------------- for chat templates

    @property
    def has_native_tools(self) -> bool:
        """Whether the model's template describes tools itself, and writes calls as this renderer does."""
        return self._turns.native_tools

    @property
    def has_system(self) -> bool:
        """Whether the model's template has system messages; else their text opens the first user message."""
        return self._turns.has_system

    @property
    def has_tool_role(self) -> bool:
        """Whether the model's template has tool messages; else results are user messages between marks."""
        return self._turns.tool is not None

    @property
    def result_marks(self) -> tuple[str, str]:
        """The text before and after a tool's result in a user message."""
        return self._format.result

    def explain(self, tools: Sequence[ToolSpec]) -> str:
        """Return the system message's text about tools that the model's template does not describe; empty if there are
        none."""
        lines = [describe_tool(tool) for tool in tools]
        arguments = [str(key) for key in tools[0].parameters.get("properties", {})] if tools else []
        return self._format.describe(lines, tools[0].name, arguments) if tools else ""

    def write_call_text(self, call: ToolCall) -> str:
        """Write a call as the model writes it. Raises RenderError for one that the format cannot express."""
        return self._format.write(call)

    # -------------------------------------------------------------------------------------------- text and ids

    def _encode_after(self, context: str, text: str) -> list[int]:
        """Return the token ids of `text` after `context`: some tokenizers put a space before the start of a text.

        If the last token of the context would absorb the start of the text, the text is encoded after a new line.
        """
        for before in (context, "\n"):
            head, whole = self._fences.encode(before), self._fences.encode(before + text)
            if whole[: len(head)] == head:
                return whole[len(head) :]
        return self._fences.encode(text, continues=True)

    def _decode(self, ids: IntArray | list[int]) -> str:
        tokens = [int(token) for token in ids if int(token) >= 0]
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _mark(number: int) -> str:
    """Return a placeholder for a reply while the template runs; no message contains its noncharacters."""
    return f"\ufdd2{number}\ufdd3"
