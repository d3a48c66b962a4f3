"""How a judge's reply becomes a verdict, and the grammar that leaves it no other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import RewardError
from turnwise.core.verdicts import Form, Mark

NUMBER = r"0(\.[0-9]{1,4})?|1(\.0{1,4})?"
"""A number from 0 to 1 in a grammar."""
_SHOWN = 120
_DECORATION = r"[\s\"'*_`]*"
"""What may stand before a value: spaces, quotes, emphasis of Markdown."""
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?![\w.,%]*\w)[^\d/%]*$")
"""A number with no other on its line: 1 out of 10 and 0,5 are none."""
_OBJECT = re.compile(r"^[ \t]*(\{.*\})[\s`]*\Z", re.MULTILINE | re.DOTALL)


def read_reply(text: str, form: Form) -> tuple[float, tuple[tuple[str, str], ...]]:
    """Return score and marks of a reply: for every mark the last line `NAME: VALUE`, or the value in a JSON object with
    which the reply ends, from a line of its own on. Neither what the judge quotes within a line counts, nor what it
    thought between <think> tags.

    Raises RewardError saying what is missing, or which value is none."""
    text = text.rpartition("</think>")[2]
    if "<think>" in text:
        raise RewardError(f"the reply {text[-_SHOWN:]!r} ends before the judge has ended its thoughts")
    if not form.marks:
        if not text.strip():
            raise RewardError("the reply is empty")
        return form.score(()), ()
    values, marks = [], []
    given = _read_object(text)
    for mark in form.marks:
        written = _find(text, mark) if given is None else _write(given.get(mark.name), mark)
        value, name = _read_word(mark, written) if mark.words else _read_number(mark, written)
        values.append(value)
        marks.append((mark.name, name))
    return form.score(values), tuple(marks)


def build_regex(form: Form) -> str:
    """A regular expression for a reply that is nothing but the lines of the form."""
    return r"\n".join(
        f"{_escape(mark.name)}: ({'|'.join(_escape(word) for word, _ in mark.words) or NUMBER})" for mark in form.marks
    )


def build_schema(form: Form) -> dict[str, Any]:
    """A JSON schema for a reply that gives a reason and then every mark."""
    given: dict[str, Any] = {"reason": {"type": "string"}}
    for mark in form.marks:
        words = [word for word, _ in mark.words]
        given[mark.name] = {"type": "string", "enum": words} if words else {"type": "number"}
    return {"type": "object", "properties": given, "required": [*given], "additionalProperties": False}


def _escape(text: str) -> str:
    """The text as a regular expression of any dialect: spaces stay as they are."""
    return re.escape(text).replace("\\ ", " ")


def _read_object(text: str) -> Mapping[str, Any] | None:
    """The JSON object with which the text ends; None if there is none."""
    found = _OBJECT.search(text)
    try:
        given = json.loads(found[1]) if found else None
    except ValueError:
        return None
    return given if isinstance(given, dict) else None


def _write(value: object, mark: Mark) -> str:
    """A value of a JSON object as it would stand on a line."""
    if value is None or isinstance(value, dict | list):
        raise _miss(f"JSON with {mark.name} {value!r}", mark)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).strip()


def _find(text: str, mark: Mark) -> str:
    """What the last line of this mark says."""
    name = r"\s".join(re.escape(word) for word in mark.name.split())
    line = rf"^[ \t#*_`-]*{name}[\"'*_`]*[ \t]*[:=]{_DECORATION}([^\n]*)"
    lines = re.findall(line, text, re.IGNORECASE | re.MULTILINE)
    if not lines:
        raise _miss(repr(text[-_SHOWN:]), mark)
    written: str = lines[-1].strip()
    return written


def _miss(shown: str, mark: Mark) -> RewardError:
    kind = " or ".join(word for word, _ in mark.words) or "NUMBER"
    return RewardError(f"the reply {shown} has no line '{mark.name}: {kind}'")


def _read_word(mark: Mark, written: str) -> tuple[float, str]:
    """Value and spelling of the only one of the mark's words on its line, which begins with it."""
    numbers = dict(mark.words)
    said = re.findall(rf"(?<!\w)(?:{'|'.join(re.escape(word) for word in numbers)})(?!\w)", written, re.IGNORECASE)
    if len(said) != 1 or not written.casefold().startswith(said[0].casefold()):
        raise RewardError(f"the reply's {mark.name} {written[:_SHOWN]!r} is not one of {', '.join(numbers)}")
    word = next(word for word in numbers if word.casefold() == said[0].casefold())
    return numbers[word], word


def _read_number(mark: Mark, written: str) -> tuple[float, str]:
    number = _NUMBER.match(written)
    if number is None:
        raise RewardError(f"the reply's {mark.name} {written[:_SHOWN]!r} is not one number")
    if not 0 <= float(number[1]) <= 1:
        raise RewardError(f"the reply's {mark.name} {number[1]} is not from 0 to 1")
    return float(number[1]), number[1]
