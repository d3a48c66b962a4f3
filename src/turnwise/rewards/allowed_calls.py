"""Compares calls with lists of allowed values, by the rules of the Berkeley Function Calling Leaderboard (BFCL) for
Python.

A wanted call lists the allowed values of every argument; "" among them also allows the argument to be left out. A made
call fulfils it when the names agree, every required argument is present, every argument is among the schema's and the
wanted ones, omitted arguments may be omitted, and every value is allowed:

    type        the value has the parameter's type (a whole number is a `float` too, 5.0 is not an `integer`, `true`
                is neither; items of a list have theirs, except that 1 is not a `float` there), or else the type of the
                first allowed value, and is then compared as it stands, as it also is where those two types differ
    text        without blanks and the marks , . / - _ * ^, in lower case, ' as ": "April 1, 2024" is "april 1 2024"
    list        the same number of items in the same order, texts among them as above; [] where "" is allowed
    object      keys of one allowed object only, each value among that key's allowed ones, texts as above; keys may be
                left out as arguments may
    others      Python's `==`, by which `true` equals 1 inside a list or an object

The calls of a reply are right if there are as many as wanted and they fulfil the wanted ones one to one, in any order.
If no call is wanted, a reply without calls is right.

Differences from the published checker (`bfcl_eval`, `ast_checker.py`):

- The published one gives each wanted call, in order, the first made call that fulfils it, and so refuses some pairings
  that exist. Here any one-to-one pairing counts.
- Names are compared as they are. The published one turns "." into "_" for models whose service forbids dots.
- Arguments are JSON. The published one also reads Python calls, and treats a malformed reply as one without calls,
  which is right if no call is wanted; here a malformed call is never right.
- A list without an item type does not constrain its items, and a type missing from the table does not constrain the
  value; the published one raises KeyError. These rules do not apply to rows of Java and JavaScript, whose values are
  source text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
"""The Python type as which values of each type are read; "any" is a text unless the allowed values are something
else."""
OMITTED = ""
"""Marks, among the allowed values, that the argument may be omitted."""
_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedCall:
    """One wanted call."""

    name: str
    allowed: Mapping[str, Sequence[Any]]
    """Allowed values by argument; each key of an allowed object in turn has a list of values."""
    parameters: Mapping[str, Any]
    """The function's `{"properties": {name: {"type", "items"}}, "required": [...]}`, with the types of `TYPES`."""

    def example(self) -> dict[str, Any] | None:
        """Return arguments that fulfil this call, each the first allowed value that is right, without those that may be
        omitted; None if no call fulfils it."""
        properties, required = self.parameters["properties"], self.parameters.get("required") or ()
        found = {}
        for key, values in self.allowed.items():
            if key in properties and (key in required or OMITTED not in values):
                for option in map(_pick, sorted(values, key=lambda option: bool(option == OMITTED))):
                    if _is_allowed(option, properties[key], values):
                        found[key] = option
                        break
        return found if self.is_fulfilled(self.name, found) else None

    def is_fulfilled(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a made call fulfils this one."""
        properties = self.parameters["properties"]
        return (
            name == self.name
            and all(key in arguments for key in self.parameters.get("required") or ())
            and all(key in properties and key in self.allowed for key in arguments)
            and all(key in arguments or OMITTED in values for key, values in self.allowed.items())
            and all(_is_allowed(value, properties[key], self.allowed[key]) for key, value in arguments.items())
        )


def count_fulfilled(wanted: Sequence[AllowedCall], made: Sequence[tuple[str, Mapping[str, Any]]]) -> int:
    """Return the maximum number of wanted calls that the made calls fulfil at once, each made call fulfilling one (a
    maximum matching)."""
    fits = [[at for at, call in enumerate(made) if each.is_fulfilled(*call)] for each in wanted]
    taken: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for at in fits[number]:
            if at not in tried:
                tried.add(at)
                if at not in taken or place(taken[at], tried):
                    taken[at] = number
                    return True
        return False

    return sum(place(number, set()) for number in range(len(wanted)))


def _pick(option: Any) -> Any:
    """Return the value that an allowed one stands for: an object's keys have lists of values."""
    if isinstance(option, list):
        return [_pick(item) if isinstance(item, dict) else item for item in option]
    if isinstance(option, dict):
        return {key: values[0] for key, values in option.items() if OMITTED not in values}
    return option


def _is_allowed(value: Any, described: Mapping[str, Any], allowed: Sequence[Any]) -> bool:
    kind = described.get("type")
    wanted = TYPES.get(kind) if isinstance(kind, str) else None
    items = described.get("items")
    item_kind = items.get("type") if isinstance(items, Mapping) else None
    item_type = TYPES.get(item_kind) if wanted is list and isinstance(item_kind, str) else None
    if kind == "float" and type(value) is int:
        value = _to_float(value)
    first = _first_type(allowed)
    if wanted is not None and type(value) is not wanted:
        return type(value) is first and value in allowed
    if item_type is not None and not any(_have_type(value, item_type, option) for option in allowed):
        return False
    if first not in (None, wanted) and wanted is not None:
        return value in allowed
    if isinstance(value, dict):
        return any(isinstance(option, dict) and _is_object(value, option) for option in allowed)
    if isinstance(value, list) and item_type is dict:
        return any(isinstance(option, list) and _are_objects(value, option) for option in allowed)
    if isinstance(value, list):
        options = [[] if option == OMITTED else option for option in allowed]
        return _simplify_items(value) in [_simplify_items(each) for each in options if isinstance(each, list)]
    return _is_among(value, allowed)


def _to_float(value: int) -> float | int:
    """Convert the number to a float; a number beyond the range of floats is returned unchanged and is never allowed."""
    try:
        return float(value)
    except OverflowError:
        return value


def _first_type(allowed: Sequence[Any]) -> type | None:
    """Return the type of the first allowed value; None if the argument can only be omitted."""
    return next((type(option) for option in allowed if option != OMITTED), None)


def _have_type(items: Sequence[Any], wanted: type, option: Any) -> bool:
    """Whether all items have the type, or that of the first item in an allowed list; any items do if "" is allowed."""
    if not isinstance(option, list):
        return True
    return all(type(item) is wanted or type(item) is _first_type(option) for item in items)


def _is_object(value: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]) -> bool:
    return all(key in allowed and _is_among(item, allowed[key]) for key, item in value.items()) and all(
        key in value or OMITTED in values for key, values in allowed.items()
    )


def _are_objects(values: Sequence[Any], allowed: Sequence[Any]) -> bool:
    return len(values) == len(allowed) and all(
        isinstance(value, dict) and isinstance(option, dict) and _is_object(value, option)
        for value, option in zip(values, allowed, strict=True)
    )


def _is_among(value: Any, allowed: Sequence[Any]) -> bool:
    return _simplify(value) in [_simplify(option) for option in allowed]


def _simplify_items(values: Sequence[Any]) -> list[Any]:
    return [_simplify(value) for value in values]


def _simplify(value: Any) -> Any:
    """Return a text in the form that is compared; anything else unchanged."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value
