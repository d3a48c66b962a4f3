"""Chat models' own formats through the `renderers` package, with text from outside kept apart from control tokens.

The package writes the template in Python, extends a conversation without rendering it again, and parses replies. This
module adds two things: a special token spelled out in a message stays plain text (the package would encode it as the
token), and any reply parses.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from turnwise.core.errors import ConfigError, RenderError, boundary
from turnwise.core.types import (
    IntArray,
    Message,
    ToolCall,
    ToolCallError,
    ToolSpec,
    reply_message,
    text_message,
    to_ids,
)
from turnwise.rendering.call_texts import CALL_TEXTS, ReadCalls
from turnwise.rendering.deepseek_calls import CALL, read_deepseek
from turnwise.rendering.fences import Fences
from turnwise.rendering.floods import CALL_TOKENS, MAX_OPEN, count_open
from turnwise.rendering.hermes_calls import OPENING, parse_tool_call, parse_tool_calls
from turnwise.rendering.images import NO_EYES
from turnwise.rendering.joined_ids import decode_joined, parse_joined
from turnwise.rendering.llama_calls import read_llama
from turnwise.rendering.raw_json import DECODER, find_object, is_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MODEL_TOKENS = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"})
"""Tokens that a model samples inside a reply; spelled out in a reply's content, they are encoded as the tokens."""

_TAGGED_KEY = re.compile(r"<arg_key>\s*([^<>]*?)\s*</arg_key>|<parameter name=\"([^\"]*)\">")
"""The name of an argument in the tags of GLM and MiniMax."""
_TAG = "arg_key>"
_TAGGED_TEXT = (
    "a tool call must be NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>, and a value that is no text JSON"
)
"""What the model is told about a call in GLM's tags that cannot be read."""
_ERROR_KINDS: dict[str, Literal["bad_json", "bad_call", "unclosed"]] = {
    "invalid_json": "bad_json",
    "unclosed_block": "unclosed",
}
_ERROR_TEXTS = {
    "bad_json": "a tool call is not valid JSON",
    "bad_call": 'a tool call must be an object with "name" and "arguments"',
    "unclosed": "a tool call was not closed",
}


class ChatRenderer:
    """Implements `core.protocols.Renderer`; `render_all` renders a whole conversation for the check at the start."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str = "qwen3",
        ends: Sequence[int] = (),
        enable_thinking: bool = True,
    ) -> None:
        """Take any tokenizer and the `name` of a renderer of the package ("qwen3", ...).

        "auto" chooses the renderer by the tokenizer's name. `ends` are further tokens that end a reply
        (`ends.read_end_ids`). `enable_thinking` False is passed to renderers that can switch thinking off.
        Raises ConfigError when the name is unknown or the tokenizer lacks the format's special tokens.
        """
        self._tokenizer = tokenizer
        self._fences = Fences(tokenizer)
        switches: dict[str, bool] = {} if enable_thinking else {"enable_thinking": False}
        try:
            with boundary(ConfigError, f"renderer.name={name!r} cannot be built for this tokenizer"):
                from renderers import config_from_name, create_renderer

                self._renderer: Any = create_renderer(
                    _FencingTokenizer(tokenizer, self._fences), config_from_name(name), chat_template_kwargs=switches
                )
                self._own_ends: tuple[int, ...] = tuple(self._renderer.get_stop_token_ids())
        except ConfigError as error:
            raise ConfigError(
                f"{error}; name the renderer of the tokenizer's own family, or use renderer.kind='template', which "
                "needs no tokens of a format"
            ) from error.__cause__
        vocabulary = tokenizer.get_vocab()
        if type(self._renderer).__name__ == "DeepSeekV4Renderer":
            keep = {*self._own_ends, *(vocabulary[mark] for mark in ("<think>", "</think>"))}
            # `bridge_to_next_turn` parses as well.
            self._renderer.parse_response = parse_joined(self._renderer.parse_response, keep, self._decode)
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys((*self._own_ends, *ends)))
        self.stop: tuple[str, ...] = ()
        self._call_ids = frozenset(vocabulary[token] for token in CALL_TOKENS if token in vocabulary)
        self.call_marks = "<" if self._call_ids else "<[{`"
        """Characters with which a call or a thought may begin in a reply's text."""
        self._empty_thought = tokenizer.encode("<think>\n\n</think>\n\n", add_special_tokens=False)

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """See `Renderer.open`. Raises RenderError when the template refuses the messages."""
        return self.render_all(messages, tools)

    def render_all(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> IntArray:
        """Return the token ids of a whole conversation rendered at once, generation prompt included.

        For checks only: rollouts append.
        """
        return to_ids(self._render(messages, tools, add_generation_prompt=True))

    def _render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, add_generation_prompt: bool
    ) -> list[int]:
        with boundary(RenderError, "the chat template refused the conversation"):
            return list(
                self._renderer.render_ids(
                    [self.to_chat(message) for message in messages],
                    tools=self._fences.fence_all(to_specs(tools)) or None,
                    add_generation_prompt=add_generation_prompt,
                )
            )

    def extend(
        self, prompt_ids: IntArray, completion_ids: IntArray, observations: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> IntArray:
        """See `Renderer.extend`. Closes a reply that was cut before its stop token."""
        completion = self._end_as_own(completion_ids)
        history = [*prompt_ids.tolist(), *completion]
        with boundary(RenderError, "the chat template refused the observations"):
            bridged = self._renderer.bridge_to_next_turn(
                prompt_ids.tolist(),
                completion,
                [self.to_chat(message) for message in observations],
                tools=self._fences.fence_all(to_specs(tools)) or None,
            )
        if bridged is None or bridged.token_ids[: len(history)] != history:
            roles = ", ".join(message.role for message in observations)
            raise RenderError(
                f"{type(self._renderer).__name__} cannot append messages of role {roles or 'none'} without rewriting "
                "the history; reply with tool messages, switch thinking off, or choose another renderer.name"
            )
        return to_ids(bridged.token_ids[len(history) :])

    def _end_as_own(self, completion_ids: IntArray) -> list[int]:
        """Return a reply that ends with a token unknown to the package as if it ended with a known one."""
        completion: list[int] = completion_ids.tolist()
        if completion and self._own_ends and completion[-1] in set(self.stop_token_ids) - set(self._own_ends):
            return [*completion[:-1], self._own_ends[0]]
        return completion

    def parse(self, prompt_ids: IntArray, completion_ids: IntArray, tools: Sequence[ToolSpec] = ()) -> Message:
        """See `Renderer.parse`. If the package cannot parse the ids, their text is read in the hermes format.

        The package finds the thoughts and the first call. From there on the formats of Qwen (hermes and tags), DeepSeek
        V3 and Llama 3 are read by the readers of `call_texts`, which know where a value ends and drop no arguments;
        other formats are read by the package. For these the arguments are the model's own text if the format writes
        them as a JSON object (Kimi's, gpt-oss's). If it writes them in another way (GLM's or MiniMax's tags), the
        package returns values only, and the arguments are their JSON. More than `MAX_OPEN` arguments that are not
        closed are one malformed call (see `floods`).
        """
        tokens = [token for token in self._end_as_own(completion_ids) if token >= 0]
        flood = self._cut_flood(tokens)
        if flood is not None:
            before, error = flood
            return replace(self.parse(prompt_ids, before, tools), tool_errors=(error,))
        first_id = len(prompt_ids)
        reasoning: str | None = None
        try:
            with boundary(RenderError, "the reply cannot be parsed"):
                parsed = self._renderer.parse_response(
                    tokens, prompt_ids=prompt_ids.tolist(), tools=to_specs(tools) or None
                )
            read = self._find_reader(tokens, parsed)
            content, reasoning = str(parsed.content), parsed.reasoning_content or None
            if read is not None:
                text, read_on = read
                rest, calls, errors = read_on(text, first_id, tools)
                content = "\n".join(part for part in (content, rest) if part)
                return reply_message(content, reasoning=reasoning, tool_calls=calls, tool_errors=errors)
            outcomes = [
                _read_call(attempt, f"call_{first_id + index}") for index, attempt in enumerate(parsed.tool_calls)
            ]
            calls = tuple(outcome for outcome in outcomes if isinstance(outcome, ToolCall))
            errors = tuple(outcome for outcome in outcomes if isinstance(outcome, ToolCallError))
        except RenderError:
            text = self._tokenizer.decode([token for token in tokens if token not in self.stop_token_ids])
            content, calls, errors = parse_tool_calls(text, first_id=first_id)
        return reply_message(
            content,
            reasoning=reasoning,
            tool_calls=calls,
            tool_errors=errors,
        )

    def _cut_flood(self, tokens: list[int]) -> tuple[IntArray, ToolCallError] | None:
        """Return the tokens before the first call, and its error, if too many arguments are opened; else None."""
        begin = next((at for at, token in enumerate(tokens) if token in self._call_ids), None)
        if begin is None:
            return None
        text = self._decode(tokens[begin:])
        num_open = count_open(text)
        if num_open <= MAX_OPEN:
            return None
        message = f"{num_open} arguments of a tool call are opened and not closed; open and close each once"
        return to_ids(tokens[:begin]), ToolCallError(kind="unclosed", raw=text, message=message)

    def _find_reader(self, tokens: list[int], parsed: Any) -> tuple[str, ReadCalls] | None:
        """Return the text of a reply from its first call on, and its reader; None if the package's calls are used."""
        end = next((at for at, token in enumerate(tokens) if token in self._own_ends), len(tokens))
        if type(self._renderer).__name__ == "Llama3Renderer":
            parsed.content = ""  # such calls have no mark of their own, so the whole reply is read
            return self._decode(tokens[:end]), read_llama
        if not parsed.tool_calls or parsed.tool_calls[0].token_span is None:
            return None
        text = self._decode(tokens[parsed.tool_calls[0].token_span[0] : end])
        inside = text.removeprefix(OPENING).lstrip()
        if text.startswith(CALL):
            return text, read_deepseek
        if text.startswith(OPENING) and inside.startswith(("{", "[", "<function=")):
            reader = "qwen_coder" if inside.startswith("<") else "hermes"
            return text, CALL_TEXTS[reader].read
        return None

    def _decode(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode_reply(self, message: Message) -> IntArray:
        """See `Renderer.encode_reply`. Renders a probe and the message, cuts the probe off, and ends with a stop token.

        Without reasoning no empty thinking block is written: the model answers at once.
        Raises RenderError when the template does not put a reply after its own generation prompt (reasoning with
        thinking off).
        """
        probe = text_message("user", "?")
        prompt = self._render([probe], (), add_generation_prompt=True)
        whole = self._render([probe, message], (), add_generation_prompt=False)
        reply = whole[len(prompt) :]
        ends = [index for index, token in enumerate(reply) if token in self._own_ends]
        if whole[: len(prompt)] != prompt or not ends:
            at = int(np.argmin([*(a == b for a, b in zip(whole, prompt, strict=False)), False]))
            raise RenderError(
                f"{type(self._renderer).__name__} does not render a reply as the text between its generation prompt "
                f"and a stop token (they differ at token {at}); drop the message's reasoning or choose another "
                "renderer.name"
            )
        reply = reply[: ends[0] + 1]
        if message.reasoning is None and reply[: len(self._empty_thought)] == self._empty_thought:
            reply = reply[len(self._empty_thought) :]
        return to_ids(reply)

    def to_chat(self, message: Message) -> dict[str, Any]:
        """Convert a message to the package's form, with its special tokens fenced off."""
        keep = _MODEL_TOKENS if message.role == "assistant" else frozenset()
        chat: dict[str, Any] = {"role": message.role, "content": self._fences.fence(_read_text(message), keep)}
        if message.reasoning is not None:
            chat["reasoning_content"] = self._fences.fence(message.reasoning)
        if message.tool_calls:
            chat["tool_calls"] = [self._to_chat_call(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            chat["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            chat["name"] = message.name
        return chat

    def _to_chat_call(self, call: ToolCall) -> dict[str, Any]:
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            raise RenderError(
                f"the arguments of the call {call.name}({call.arguments[:200]}) are not JSON; write a JSON object"
            ) from None
        # Fencing the values (not the JSON text) lets a template write the object in its own form.
        return {
            "id": call.id,
            "type": "function",
            "function": {"name": self._fences.fence(call.name), "arguments": self._fences.fence_all(arguments)},
        }


class _FencingTokenizer:
    """The tokenizer the package sees: it encodes fenced text as plain characters, and the rest unchanged."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, fences: Fences) -> None:
        self._tokenizer = tokenizer
        self._fences = fences

    def encode(self, text: str, *_: object, **__: object) -> list[int]:
        return self._fences.encode(text)

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        """Return the text of ids, also of `JoinedIds`."""
        if "clean_up_tokenization_spaces" in options:
            # Asked so, to find which message each token is of, in time quadratic in the text; nobody reads that here.
            raise NotImplementedError
        return decode_joined(ids, lambda run: str(self._tokenizer.decode(run, **options)))

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> list[int]:
        """Return token ids, as the package requests them; the template renders text so that `encode` sees the
        fences."""
        return self.encode(self._tokenizer.apply_chat_template(messages, **{**options, "tokenize": False}))

    def __getattr__(self, name: str) -> Any:
        # Without `__call__` the package asks for no character offsets, which fences would move.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._tokenizer, name)


def _read_text(message: Message) -> str:
    if message.images:
        raise RenderError(NO_EYES)
    return message.text


def to_specs(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Convert tools to the form that chat templates and the package take."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def _read_call(attempt: Any, call_id: str) -> ToolCall | ToolCallError:
    """Convert a call that the package parsed, or the error that it found."""
    status = str(attempt.status)
    if _holds_more(attempt):
        return parse_tool_call(attempt.raw, closed=True, call_id=call_id)
    if status in ("ok", "unknown_tool") and isinstance(attempt.name, str):
        arguments = attempt.arguments
        keys = [match[1] or match[2] or "" for match in _TAGGED_KEY.finditer(attempt.raw)]
        if isinstance(arguments, dict) and len(arguments) < len(keys) and len(set(keys)) < len(keys):
            twice = Counter(keys).most_common(1)[0][0]
            message = f"the parameter {twice[:50]!r} is given twice"
            return ToolCallError(kind="bad_call", raw=attempt.raw, message=message)
        written = find_object(attempt.raw, arguments) if isinstance(arguments, dict) else arguments
        if not isinstance(written, str):
            written = json.dumps(arguments, ensure_ascii=False)
        return ToolCall(id=call_id, name=attempt.name, arguments=written)
    kind = _ERROR_KINDS.get(status, "bad_call")
    is_tagged = kind != "unclosed" and _TAG in attempt.raw
    return ToolCallError(kind=kind, raw=attempt.raw, message=_TAGGED_TEXT if is_tagged else _ERROR_TEXTS[kind])


def _holds_more(attempt: Any) -> bool:
    """Whether the object of a call has content although the package found no arguments in it."""
    value = DECODER.decode(attempt.raw) if is_json(attempt.raw) else None
    return (
        isinstance(value, dict)
        and attempt.name is not None
        and not attempt.arguments
        and any(held for key, held in value.items() if key != "name")
    )
