"""Puts a text where an environment looks for one: into tags, a box, a fence or the arguments of a call, as a reply
that ends an episode has them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from turnwise.core.types import Message, ToolCall, ToolSpec, text_message

_PLACES = (
    re.compile(r"(?P<head><answer>\s*)(?P<body>.*?)(?P<tail>\s*</answer>)", re.DOTALL),
    re.compile(r"(?P<head>\\boxed\{\s*)(?P<body>.*?)(?P<tail>\s*\})", re.DOTALL),
    re.compile(r"(?P<head>```[\w+-]*\n)(?P<body>.*?)(?P<tail>\n?```)", re.DOTALL),
    re.compile(r"(?P<head>\A\w[\w ]*:\s*)(?P<body>.+?)(?P<tail>\s*\Z)", re.DOTALL),
)
"""Where a reply has its answer: tags, a box, a fence, or a line `name: value`."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"\w+(?:[-.']\w+)*")
MOST_CANDIDATES = 60
"""Most words of a conversation that are tried as answers."""
ALL_FORMS = (
    "<answer>{0}</answer>\n\\boxed{{{0}}}\nThe answer is: {0}\n#### {0}\n**{0}**\n"
    '```\n{0}\n```\n{{"answer": "{0}"}}\nverdict: {0}\nscore: {0}'
)
"""An answer in the forms that graders look for."""


def say(text: str) -> Message:
    """Return a reply of plain text."""
    return text_message("assistant", text)


def fill(form: Message, text: str) -> Message:
    """Return a reply in the form of another one, with `text` in the place of its answer.

    Of a reply with calls it is the last call, every text of which is replaced; a number is replaced if `text` is one.
    A reply without a known place is replaced as a whole.
    """
    if form.tool_calls:
        call = form.tool_calls[-1]
        return say_call(call.name, _replace_texts(call.arguments, text))
    for place in _PLACES:
        if place.search(form.text):
            return say(place.sub(lambda found: found["head"] + text + found["tail"], form.text))
    return say(text)


def _replace_texts(arguments: str, text: str) -> str:
    try:
        return json.dumps(_replace(json.loads(arguments), text), ensure_ascii=False)
    except ValueError:
        return text


def _replace(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return text
    if isinstance(value, dict):
        return {key: _replace(each, text) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace(each, text) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _read_number(text, value)
    return value


def _read_number(text: str, otherwise: float) -> float:
    try:
        number = float(text)
    except ValueError:
        return otherwise
    is_whole = math.isfinite(number) and number == int(number) and isinstance(otherwise, int)
    return int(number) if is_whole else number


def say_call(name: str, arguments: str, *, number: int = 0) -> Message:
    """Return a reply with one call; `arguments` are JSON or what an attack puts in its place."""
    return text_message("assistant", "", tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=arguments),))


def join_calls(replies: Sequence[Message]) -> Message:
    """Return one reply with the calls of all."""
    calls = [call for reply in replies for call in reply.tool_calls]
    return text_message(
        "assistant", "", tool_calls=tuple(replace(call, id=f"call_{number}") for number, call in enumerate(calls))
    )


def read_code_tool(tools: Sequence[ToolSpec]) -> tuple[str, str] | None:
    """Return the first tool that runs what it is told, and the name of that argument; None if there is none."""
    for tool in tools:
        for name in tool.properties:
            if name in ("code", "program", "script", "command", "cmd"):
                return tool.name, name
    return None


def list_heard(messages: Sequence[Message]) -> str:
    """Return what the environment said, without system messages."""
    return "\n".join(message.text for message in messages if message.role in ("user", "tool"))


def list_candidates(messages: Sequence[Message]) -> list[str]:
    """Return the last different words and numbers that the environment said, in order; ["0"] if there is none."""
    found = dict.fromkeys(reversed(_WORD.findall(list_heard(messages))))
    return list(reversed([*found][:MOST_CANDIDATES])) or ["0"]


def list_numbers(messages: Sequence[Message]) -> list[str]:
    """Return the numbers that the environment said, in order; ["0"] if there is none."""
    return _NUMBER.findall(list_heard(messages)) or ["0"]
