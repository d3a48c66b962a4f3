"""What a client is given of a sampled reply.

Programs read the arguments of a call without asking whether they can. So only calls that a program can make are handed
out: of a tool on offer, with an object as arguments. Anything else that looks like a call is delivered as text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from turnwise.core.messages import Message, ToolCall, reply_message
from turnwise.gateway.arguments import read_object
from turnwise.gateway.protocols.call import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A reply as the client gets it."""

    message: Message
    """Its calls still have the renderer's ids."""
    finish: Finish
    stop_text: str | None = None
    """The client's stop string that the text was cut at."""


def to_delivery(
    parsed: Message, *, is_cut: bool, tools: Collection[str], max_calls: int | None, stop: Sequence[str]
) -> Delivery:
    """Convert a parsed reply. `is_cut` says that a limit of tokens ended it, `tools` are the names on offer."""
    calls = [call for call in parsed.tool_calls if call.name in tools and read_object(call.arguments) is not None]
    if max_calls is not None and len(calls) > max_calls:
        calls = []
    text, stop_text = cut_text(parsed.text, stop)
    if stop_text is None:
        kept = {id(call) for call in calls}
        raw = [f"{call.name}({call.arguments})" for call in parsed.tool_calls if id(call) not in kept]
        raw += [error.raw for error in parsed.tool_errors if error.raw not in text]
        text = "\n".join(part for part in (text, *raw) if part)
    message = reply_message(text, reasoning=parsed.reasoning, tool_calls=tuple(map(_fill, calls)))
    finish: Finish = "tool_calls" if calls else "length" if is_cut and stop_text is None else "stop"
    return Delivery(message=message, finish=finish, stop_text=stop_text)


def cut_text(text: str, stop: Sequence[str]) -> tuple[str, str | None]:
    """Return a text before the first of the stop strings in it, and that string; None if there is none."""
    found = re.search("|".join(map(re.escape, stop)), text) if stop else None
    return (text, None) if found is None else (text[: found.start()], found[0])


def _fill(call: ToolCall) -> ToolCall:
    """Return a call whose arguments any client can parse: an empty text becomes an empty object."""
    if call.arguments.strip():
        return call
    return ToolCall(id=call.id, name=call.name, arguments="{}")
