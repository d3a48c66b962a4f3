"""The single place that reads what users' code returns: a number, a reward, messages, tool records, or one line that
says why it is none of them.

A number may be of Python, numpy, torch or any package that names itself a real number; a truth value is 1 or 0. A
single number in an array or a tensor is that number. Text is never a number, whatever it spells: guessing would turn a
mistake into a reward. This module does not know the caller; `where` names the code that returned the value.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from turnwise.core.errors import EnvironmentFault
from turnwise.core.pictures import find_fault
from turnwise.core.types import (
    ImagePart,
    Invalid,
    Message,
    Part,
    Reward,
    RewardPart,
    Scored,
    Signal,
    Task,
    TextPart,
    ToolRecord,
    ToolSpec,
    TurnScores,
)

LARGEST = 1e30
"""The largest number accepted: squares of values derived from it still fit float64, and it fits float32 itself."""
TOTALS = ("reward", "score")
"""Keys of a dict that may contain the whole reward; the first one present is used, and the others are its parts."""
NUMBER = "not a finite number"

Kind = TypeVar("Kind")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class NoNumber(ValueError):
    """Raised with what a value is instead of a finite number; the message follows the word "is"."""


def show(value: object) -> str:
    """Show a value on one short line, even if its `repr` raises."""
    return " ".join(_SHORT.repr(value).split())


def read_number(value: object) -> float:
    """Return the finite number that `value` represents. Raises NoNumber saying what it is instead."""
    kind, read = type(value).__name__, value
    if isinstance(value, np.ma.MaskedArray):
        raise NoNumber(f"{show(value)}, a masked array")
    if hasattr(value, "item") and hasattr(value, "shape"):
        shape = tuple(value.shape)
        if math.prod(shape) != 1:
            raise NoNumber(f"a {kind} of shape {shape}, not one number")
        try:
            read = value.item()
        except (TypeError, ValueError, RuntimeError):
            raise NoNumber(f"a {kind} that contains no number") from None
    if not isinstance(read, Real | Decimal):
        plain = read is None or isinstance(read, str | list | dict | tuple)
        raise NoNumber(f"{show(read)}" + ("" if plain else f", a {type(read).__name__}") + f", {NUMBER}")
    try:
        number = float(read)
    except (OverflowError, ValueError, TypeError):
        raise NoNumber(f"{show(read)}, too large for a 64-bit number") from None
    if not math.isfinite(number):
        raise NoNumber(f"{number}, {NUMBER}")
    if abs(number) > LARGEST:
        raise NoNumber(f"{number}; numbers beyond {LARGEST:g} are too large to compute with")
    return number


# ------------------------------------------------------------------------------------------------ rewards


def read_reward(value: object, where: str) -> Reward:
    """Return `value` as a reward: it may be a `Scored`, an `Invalid`, a number, or a dict with a total and parts by
    name.

    Anything else gives an Invalid that names `where` and what is wrong; it is not retryable, as the code would return
    the same again.
    """
    if isinstance(value, Invalid):
        return Invalid(reason=str(value.reason), retryable=bool(value.retryable))
    total: object = value
    given: object = ()
    if isinstance(value, Scored):
        total, given = value.total, value.parts
    elif isinstance(value, Mapping):
        key = next((key for key in TOTALS if key in value), None)
        if key is None:
            return _refuse(where, f"the reward is {show(value)}; a dict names the reward itself {TOTALS[0]!r}")
        total, given = value[key], {name: part for name, part in value.items() if name != key}
    parts = _read_parts(given)
    if isinstance(parts, str):
        return _refuse(where, parts)
    try:
        scored = Scored(total=read_number(total))
    except NoNumber as problem:
        return _refuse(where, f"the reward's total is {problem}" if given else f"the reward is {problem}")
    checked = []
    for name, part in parts:
        try:
            checked.append(RewardPart(name=name, value=read_number(part)))
        except NoNumber as problem:
            return _refuse(where, f"the reward's {name} is {problem}")
    return replace(scored, parts=tuple(checked))


def _refuse(where: str, problem: str) -> Invalid:
    remedy = "return a number, Scored(total, parts) of numbers, or Invalid(reason, retryable) where there is none"
    return Invalid(reason=f"{where}: {problem}; {remedy}", retryable=False)


def _read_parts(given: object) -> list[tuple[str, object]] | str:
    """Return names and values as given, or what is wrong with them."""
    items: Iterable[Any] = given.items() if isinstance(given, Mapping) else given  # type: ignore[assignment]
    if isinstance(given, str | bytes) or not isinstance(given, Mapping | Sequence):
        return f"the reward's parts are {show(given)}; give RewardPart(name, value) each, or a dict"
    parts: list[tuple[str, object]] = []
    for part in items:
        match part:
            case RewardPart(name=str(name), value=value) | (str(name), value):
                parts.append((name, value))
            case _:
                return f"one of the reward's parts is {show(part)}; give RewardPart(name, value) each, or a dict"
    names = [name for name, _ in parts]
    twice = next((name for name in names if names.count(name) > 1), None)
    return parts if twice is None else f"the reward has two parts {twice!r}; name each once"


def read_rewards(value: object, roles: Sequence[str], where: str) -> dict[str, Reward]:
    """Return a reward for every role. Raises EnvironmentFault naming roles without one, and values that are not a
    reward."""
    if not isinstance(value, Mapping):
        raise EnvironmentFault(f"{where} returned {show(value)}; return a dict with a reward for each role")
    if missing := [role for role in roles if role not in value]:
        raise EnvironmentFault(f"{where} returned no reward for {', '.join(missing)}; score every role")
    if unknown := [show(role) for role in value if role not in roles]:
        raise EnvironmentFault(f"{where} returned a reward for {', '.join(unknown)}; the roles are {', '.join(roles)}")
    several = len(roles) > 1
    return {role: read_reward(value[role], f"{where} for role {role!r}" if several else where) for role in roles}


# ------------------------------------------------------------------------------------------------ tasks and turns


def read_task(value: object, where: str) -> Task:
    """Return `value` as a task. Raises EnvironmentFault naming what is wrong."""
    if not isinstance(value, Task):
        raise EnvironmentFault(f"{where} returned {show(value)}; return Task(environment=..., prompt=..., payload=...)")
    prompt = read_messages(value.prompt, f"the prompt of {where}")
    if not isinstance(value.payload, Mapping):
        raise EnvironmentFault(f"the payload of {where} is {show(value.payload)}; return a dict of JSON values")
    for name in ("environment", "id"):
        if not isinstance(getattr(value, name), str):
            raise EnvironmentFault(f"the {name} of {where} is {show(getattr(value, name))}; return text")
    return value if prompt == value.prompt else replace(value, prompt=prompt)


def read_all(values: object, kind: type[Kind], what: str) -> tuple[Kind, ...]:
    """Return the values, each checked to be a `kind`. Raises EnvironmentFault naming `what` for anything else."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise EnvironmentFault(f"{what} are {show(values)}; return a tuple of {kind.__name__}")
    read = tuple(values)
    for index, value in enumerate(read):
        if not isinstance(value, kind):
            raise EnvironmentFault(f"{what} have {show(value)} at {index}; return a tuple of {kind.__name__}")
    return read


def read_messages(values: object, what: str) -> tuple[Message, ...]:
    """Return messages whose parts are text that can be encoded as UTF-8, and pictures whose pixels have the size and
    digest that they name. Raises EnvironmentFault naming `what`."""
    messages = read_all(values, Message, what)
    for message in messages:
        _check_parts(message.content, what)
    return messages


def _check_parts(parts: Iterable[Part], what: str) -> None:
    for part in parts:
        if isinstance(part, ImagePart):
            if (fault := find_fault(part)) is not None:
                raise EnvironmentFault(f"{what} have a picture {fault}; build it with turnwise.read_picture")
        elif isinstance(part, TextPart) and isinstance(part.text, str):
            _check_text(part.text, what)
        else:
            raise EnvironmentFault(
                f"{what} have a part {show(part)}; every part must be TextPart(text=...) with text, or a picture "
                "from turnwise.read_picture"
            )


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        half = text[cause.start]
        raise EnvironmentFault(
            f"{what} have half of a surrogate pair, {half!r} at {cause.start}, which is not valid text; repair it "
            "where it is read, with errors='replace'"
        ) from None


def read_specs(values: object, what: str) -> tuple[ToolSpec, ...]:
    """Return tool descriptions. Raises EnvironmentFault naming `what`."""
    return read_all(values, ToolSpec, what)


def read_records(values: object, what: str) -> tuple[ToolRecord, ...]:
    """Return records of tool calls, whose seconds are a number and whose parts are as those of messages. Raises
    EnvironmentFault naming `what`."""
    records = read_all(values, ToolRecord, what)
    for record in records:
        _check_parts(record.content, what)
    return tuple(
        replace(record, seconds=_number(record.seconds, f"the seconds of {record.call.name!r} in {what}"))
        for record in records
    )


def read_scores(scores: object, where: str) -> TurnScores:
    """Return the scores of a turn. Raises EnvironmentFault naming a score that is not a number."""
    if not isinstance(scores, TurnScores):
        raise EnvironmentFault(f"{where}: scores is {show(scores)}; return TurnScores(...)")
    values = {field.name: getattr(scores, field.name) for field in fields(scores)}
    read = {name: None if value is None else _number(value, f"{where}: {name}") for name, value in values.items()}
    return TurnScores(**read)


def read_signals(values: object, where: str) -> tuple[Signal, ...]:
    """Return signals with finite values. Raises EnvironmentFault naming one whose value is not finite."""
    signals = read_all(values, Signal, f"the signals of {where}")
    return tuple(
        Signal(name=signal.name, value=_number(signal.value, f"{where}: signal {signal.name!r}")) for signal in signals
    )


def _number(value: object, what: str) -> float:
    try:
        return read_number(value)
    except NoNumber as problem:
        raise EnvironmentFault(f"{what} is {problem}; leave out values that were not measured") from None


def read_truth(value: object, what: str) -> bool:
    """Return a truth value given as Python, numpy or torch bool, or as 1 or 0. Raises EnvironmentFault naming `what`
    for anything else."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    if hasattr(value, "item") and math.prod(tuple(getattr(value, "shape", (0,)))) == 1:
        return read_truth(value.item(), what)
    raise EnvironmentFault(f"{what} is {show(value)}, a {type(value).__name__}; return True or False")
