"""Canonical keys of messages: two messages have one key if a client could have made one of the other without a change.

Not in a key: call ids, reasoning, names of tool messages, the spelling of arguments, white space around a reply, and
whether a text came as a string or in parts. In it: everything else, exactly. A position in a conversation is the chain
of the keys so far, which begins with tools, model and template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from turnwise.core.messages import Message, ToolSpec, identify
from turnwise.gateway.arguments import to_canonical


def digest(*parts: str | bytes) -> bytes:
    """Return a 20-byte hash; the parts' lengths are part of it."""
    hashed = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.digest()


def root_key(tools: Sequence[ToolSpec], model: str, options: Mapping[str, object] | None = None) -> bytes:
    """Return the key with which conversations begin: of the tools in their order, the model and the options of the
    template."""
    described = [[tool.name, tool.description, tool.parameters] for tool in tools]
    return digest("root", json.dumps([described, model, dict(options or {})], sort_keys=True))


def extend_chain(chain: bytes, key: bytes) -> bytes:
    """Return the chain of keys with one more."""
    return digest("chain", chain, key)


def message_keys(messages: Sequence[Message]) -> list[bytes]:
    """Return the key of every message of a conversation.

    A tool's result names its call by place: the distance to the message with that call, and the call's number there.
    """
    keys = []
    calls: dict[str, tuple[int, int]] = {}
    for at, message in enumerate(messages):
        if message.role == "assistant":
            calls |= {call.id: (at, number) for number, call in enumerate(message.tool_calls)}
            keys.append(reply_key(message))
            continue
        called = calls.get(message.tool_call_id or "")
        place = message.tool_call_id or "" if called is None else f"{at - called[0]} back, call {called[1]}"
        content = identify(message.content)
        text = content if isinstance(content, str) else json.dumps(content, sort_keys=True)
        keys.append(digest("context", message.role, text, place))
    return keys


def reply_key(message: Message) -> bytes:
    """Return the key of an assistant message: its text without white space at the ends, and its calls."""
    calls = [part for call in message.tool_calls for part in (call.name, to_canonical(call.arguments))]
    return digest("reply", message.text.strip(), *calls)


def find_difference(ours: Message, theirs: Message, *, is_exact: bool = False) -> str | None:
    """Return the first field in which an echoed reply differs from the one that was delivered; None if it is the same.

    An echo without reasoning has dropped it, which is no difference unless `is_exact`.
    """
    if ours.text.strip() != theirs.text.strip():
        return "content"
    if len(ours.tool_calls) != len(theirs.tool_calls):
        return "the number of tool calls"
    for number, (mine, other) in enumerate(zip(ours.tool_calls, theirs.tool_calls, strict=True)):
        if mine.name != other.name:
            return f"tool_calls[{number}].name"
        if to_canonical(mine.arguments) != to_canonical(other.arguments):
            return f"tool_calls[{number}].arguments"
    return None if is_same_thought(ours, theirs, is_exact=is_exact) else "reasoning"


def is_same_thought(ours: Message, theirs: Message, *, is_exact: bool = False) -> bool:
    """Whether an echo has the reasoning that was delivered, or none; with `is_exact`, whether it has that reasoning."""
    thought = (theirs.reasoning or "").strip()
    return (not thought and not is_exact) or thought == (ours.reasoning or "").strip()
