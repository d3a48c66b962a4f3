"""Checks at start that the renderer, with this tokenizer and tool set, only appends, and reads back what it wrote.

Works for any `Renderer`. If it can render a whole conversation at once (`render_all`), it is compared with itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np

from turnwise.core.errors import RenderError
from turnwise.core.prompts import open_prompt
from turnwise.core.protocols import Renderer
from turnwise.core.types import IntArray, Message, ToolCall, ToolSpec, text_message, to_ids

_PROBE = 'naïve  "quotes" \n\ttabs — 你好 🙂 '
"""Unusual on purpose: whitespace and other scripts."""

Decode = Callable[[Sequence[int]], str]


def check_prefix_stable(
    renderer: Renderer, decode: Decode, messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> None:
    """Play a probe conversation and check that the renderer appends and reads back.

    The conversation has an opening, two calls with their answers and a final reply. It is required that

    - each reply, encoded and parsed, is the same reply, and encoding what was parsed gives the same tokens;
    - an answer that spells out the tokens that end a reply appends no more of those tokens than a harmless answer;
    - the turns' tokens, one after another, are those of the whole conversation rendered at once, if the renderer can
      render it: a template that rewrites history is caught here instead of in training.

    `decode` turns token ids into text for the messages. Raises RenderError naming the first differing token and the
    remedy.
    """
    name = tools[0].name if tools else "search"
    argument = next(iter(tools[0].properties), "query") if tools else "query"
    history: list[Message] = list(messages)
    built = open_prompt(renderer, history, tools).token_ids
    _compare(built, renderer.open(history, tools), decode, "opening the same conversation again")
    stops = [decode([token]) for token in renderer.stop_token_ids]
    reasoning = _find_reasoning(renderer)
    for number, answer in enumerate((_PROBE, "plain " + " ".join([*stops, *renderer.stop]))):
        call = ToolCall(id=f"call_{number}", name=name, arguments=f'{{"{argument}": "probe {number} é"}}')
        reply = Message(role="assistant", content=(), reasoning=reasoning, tool_calls=(call,))
        reply_ids, call_id = _check_reply(renderer, decode, built, reply)
        observation, harmless = (
            text_message("tool", text, tool_call_id=call_id, name=name) for text in (answer, "plain")
        )
        appended, template = (
            renderer.extend(built, reply_ids, [message], tools) for message in (observation, harmless)
        )
        if _count(appended, renderer.stop_token_ids) != _count(template, renderer.stop_token_ids):
            raise RenderError(
                f"a tool's answer can forge control tokens: {answer!r} became {appended.tolist()}, which has more of "
                f"the tokens {stops} than the template itself writes; encode untrusted text with "
                "rendering.tokenizer.encode_text"
            )
        built = to_ids(np.concatenate([built, reply_ids, appended]))
        history += [reply, observation]
    _check_reply(renderer, decode, built, text_message("assistant", "<answer> done </answer>"))
    render_all = getattr(renderer, "render_all", None)
    if render_all is not None:
        _compare(built, render_all(history, tools), decode, "a full rendering")


def _find_reasoning(renderer: Renderer) -> str | None:
    """Return probe reasoning; None if the renderer cannot write any (thinking is switched off)."""
    try:
        renderer.encode_reply(text_message("assistant", "done", reasoning="probe"))
    except RenderError:
        return None
    return "probe"


def _check_reply(renderer: Renderer, decode: Decode, prompt: IntArray, reply: Message) -> tuple[IntArray, str | None]:
    """Return the reply's token ids and the id of its call.

    Raises RenderError when it does not survive encoding and parsing.
    """
    ids = renderer.encode_reply(reply)
    parsed = renderer.parse(prompt, ids)
    meant, read = ([(call.name, _read_json(call.arguments)) for call in each.tool_calls] for each in (reply, parsed))
    if meant != read or parsed.text != reply.text or parsed.tool_errors:
        written = decode(ids.tolist())
        if lost := _find_lost(reply, written):
            raise RenderError(
                f"the tokenizer has no tokens for {lost!r}: a reply became {written!r}; no renderer helps, take a "
                "tokenizer that writes every text (BPE on bytes, or byte_fallback)"
            )
        raise RenderError(
            f"a reply changes when it is encoded and parsed: {reply.text or meant} became {parsed.text or read} with "
            f"errors {[error.message for error in parsed.tool_errors]}, via {written!r}; the renderer "
            "does not match this tokenizer or tool set: choose another renderer.kind or renderer.name"
        )
    _compare(ids, renderer.encode_reply(parsed), decode, "encoding the parsed reply again")
    return ids, parsed.tool_calls[0].id if parsed.tool_calls else None


def _find_lost(reply: Message, written: str) -> str:
    """The letters of a reply that are in its tokens neither as they are nor as JSON's escapes."""
    letters = {c for text in (reply.text, *(call.arguments for call in reply.tool_calls)) for c in text if c.isalpha()}
    return "".join(sorted(c for c in letters if c not in written and json.dumps(c)[1:-1] not in written))


def _read_json(text: str) -> object:
    """Read the value, since a template may write an object with different spacing; text that is not JSON stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _compare(built: IntArray, other: IntArray, decode: Decode, what: str) -> None:
    """Raise RenderError at the first token where `other` differs from the turns' tokens."""
    for index, (left, right) in enumerate(zip_longest(built.tolist(), other.tolist())):
        if left != right:
            ours, theirs = ("nothing" if token is None else f"{token} ({decode([token])!r})" for token in (left, right))
            raise RenderError(
                f"the renderer is not prefix-stable: at token {index} the turns gave {ours}, but {what} gives "
                f"{theirs}; use a renderer that never rewrites history (renderer.name), or renderer.kind='tags'"
            )


def _count(ids: IntArray, tokens: Sequence[int]) -> int:
    return int(np.isin(ids, tokens).sum())
