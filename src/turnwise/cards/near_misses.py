"""Answers that are nearly the gold answer, the gold answer written otherwise, and replies that nearly succeeded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from turnwise.core.types import Message, TextPart

_NUMBER = re.compile(r"\d+(?!.*\d)", re.DOTALL)
"""The last whole number of a text."""
_PLAIN = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A perturbed gold answer."""

    kind: str
    answer: str
    is_right: bool | None
    """Whether it means the gold answer; None where graders may differ."""


def list_near_misses(gold: str, other: str, random: Random) -> Iterator[NearMiss]:
    """Perturb a gold answer; `other` is another task's gold answer that is a different one, empty if there is none.

    A kind that does not fit the answer is left out: a number has no capitals."""
    is_number, words = bool(_PLAIN.fullmatch(gold)), gold.split()
    has_word = any(len(word) > 3 and word.isalpha() for word in words)
    yield NearMiss(kind="nothing", answer="", is_right=False)
    yield NearMiss(kind="a negation", answer=f"not {gold}", is_right=False)
    if other:
        yield NearMiss(kind="another entity", answer=other, is_right=False)
        yield NearMiss(kind="two answers", answer=f"{gold} or {other}", is_right=False)
    if match := _NUMBER.search(gold):
        changed = f"{gold[: match.start()]}{int(match[0]) + 1}{gold[match.end() :]}"
        yield NearMiss(kind="off by one", answer=changed, is_right=False)
    if has_word:
        yield NearMiss(kind="an extra word", answer=f"{gold} Junior", is_right=False)
        place = random.choice([at for at, letter in enumerate(gold) if letter.isalpha()])
        letter = "x" if gold[place].casefold() != "x" else "y"
        yield NearMiss(kind="a letter changed", answer=gold[:place] + letter + gold[place + 1 :], is_right=False)
        yield NearMiss(kind="capitals", answer=gold.upper(), is_right=True)
        yield NearMiss(kind="an article", answer=f"the {gold}", is_right=True)
    if len(words) > 1 and has_word:
        yield NearMiss(kind="a word missing", answer=" ".join(words[:-1]), is_right=False)
    yield NearMiss(kind="spaces around", answer=f"  {gold} ", is_right=True)
    yield NearMiss(kind="a full stop", answer=f"{gold}.", is_right=True)
    if is_number:
        yield NearMiss(kind="a trailing unit", answer=f"{gold} metres", is_right=None)
        yield NearMiss(kind="as a decimal", answer=f"{gold}.0", is_right=None)
        if abs(int(gold)) >= 1000:
            yield NearMiss(kind="groups of digits", answer=f"{int(gold):,}", is_right=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPlay:
    """An episode's replies, perturbed."""

    kind: str
    replies: tuple[Message, ...]
    is_right: bool | None
    """Whether they mean the same; None where another way may be right as well."""


def list_near_plays(replies: Sequence[Message], others: Sequence[Message]) -> Iterator[NearPlay]:
    """Perturb replies that succeeded; `others` are those that succeeded at another task, empty if there are none.

    Only calls with other spaces are surely right, since text may be read letter by letter, and nothing is surely wrong:
    there may be a second way. A kind that changes nothing is left out."""
    if not replies:
        return
    said = tuple(replies)
    spelled = tuple(map(_spell_otherwise, said))
    if spelled != said:
        yield NearPlay(kind="other spaces in calls", replies=spelled, is_right=True)
    if said[-1].text and not said[-1].tool_calls:
        last = replace(said[-1], content=(TextPart(text=f"{said[-1].text} "),))
        yield NearPlay(kind="a space behind the last text", replies=(*said[:-1], last), is_right=None)
    for place in reversed(range(len(said))):
        if (changed := _add_one(said[place])) != said[place]:
            yield NearPlay(
                kind="the last number off by one",
                replies=(*said[:place], changed, *said[place + 1 :]),
                is_right=None,
            )
            break
    if len(said) > 1:
        yield NearPlay(kind="the last reply left out", replies=said[:-1], is_right=None)
        yield NearPlay(kind="the first reply left out", replies=said[1:], is_right=None)
    if others:
        yield NearPlay(kind="the last reply of another task", replies=(*said[:-1], others[-1]), is_right=None)
        yield NearPlay(kind="all replies of another task", replies=tuple(others), is_right=None)


def _spell_otherwise(message: Message) -> Message:
    """The same calls with other spaces in their JSON."""
    calls = tuple(replace(call, arguments=_respace(call.arguments)) for call in message.tool_calls)
    return replace(message, tool_calls=calls)


def _respace(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except ValueError:
        return arguments


def _add_one(message: Message) -> Message:
    """The message with the last number of its calls, else of its text, greater by one; the same if it has none."""
    for at in reversed(range(len(message.tool_calls))):
        call = message.tool_calls[at]
        if (arguments := _NUMBER.sub(_next, call.arguments, count=1)) != call.arguments:
            calls = (*message.tool_calls[:at], replace(call, arguments=arguments), *message.tool_calls[at + 1 :])
            return replace(message, tool_calls=calls)
    text = _NUMBER.sub(_next, message.text, count=1)
    return message if text == message.text else replace(message, content=(TextPart(text=text),))


def _next(match: re.Match[str]) -> str:
    return str(int(match[0]) + 1)
