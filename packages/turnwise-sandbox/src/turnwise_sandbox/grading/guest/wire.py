"""Encodes values as JSON and back, for the messages between the two halves of a graded test run.

Values of exactly these types are copied: None, bool, int, float, complex, str, bytes, bytearray, tuple, list, dict,
set, frozenset, range, slice, Ellipsis, NotImplemented, date, time (without time zone), datetime, timezone, ZoneInfo,
timedelta, Decimal, Fraction, UUID, paths, numpy arrays and scalars of numbers and text. Built-in types and exception
classes are sent by name. Every other object is sent as a reference, which callables given to `Encoder` and `Decoder`
make and resolve.

JSON scalars represent themselves; everything else is `[tag, ...]`. Mutable containers are numbered in the order in
which they occur, and a second occurrence (an alias, a cycle, an argument that is returned) is sent as the number.

Decoding runs no code of the sender: an unknown tag, a wrong count or a wrong type raises `WireError`.
"""

import base64
import builtins
import datetime
import importlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_FRAME_BYTES = 16 << 20
"""Maximum size of a message, in bytes."""
MAX_DEPTH = 100
"""Maximum nesting of containers in a message; aliases can build deeper values."""

VALUE_TYPES = "bool int float complex str bytes bytearray tuple list dict set frozenset range slice object type"
VALUE_FUNCTIONS = (
    "abs all any ascii bin chr divmod format hash hex id iter len max min next oct ord pow repr round sorted sum"
)
TYPES: dict[str, type] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type)
    and value.__name__ == name
    and (issubclass(value, BaseException) or name in VALUE_TYPES.split())
}
"""Types that are sent by name, in both directions."""
FUNCTIONS: dict[str, Any] = {name: getattr(builtins, name) for name in VALUE_FUNCTIONS.split()}
"""Functions that the grader sends by name (a test passing `key=len`). Never accepted from the worker."""
TYPE_NAMES = {id(value): name for name, value in TYPES.items()}
FUNCTION_NAMES = {id(value): name for name, value in FUNCTIONS.items()}
DTYPE = re.compile(r"[<>|=]?[biufcSU]\d{1,5}")

ATOMS: dict[str, tuple[str, str, Callable[[Any], tuple[Any, ...] | None]]] = {
    "D": ("datetime", "date", lambda x: (x.year, x.month, x.day)),
    "DT": (
        "datetime",
        "datetime",
        lambda x: (
            (x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond)
            if x.tzinfo is None and not x.fold
            else None
        ),
    ),
    "TM": (
        "datetime",
        "time",
        lambda x: (x.hour, x.minute, x.second, x.microsecond) if x.tzinfo is None and not x.fold else None,
    ),
    "TZ": ("datetime", "timezone", lambda x: x.__getinitargs__()),
    "ZI": ("zoneinfo", "ZoneInfo", lambda x: (x.key,) if type(x.key) is str else None),
    "TD": ("datetime", "timedelta", lambda x: (x.days, x.seconds, x.microseconds)),
    "DE": ("decimal", "Decimal", lambda x: (str(x),)),
    "FR": ("fractions", "Fraction", lambda x: (x.numerator, x.denominator)),
    "U": ("uuid", "UUID", lambda x: (str(x),)),
    "PP": ("pathlib", "PosixPath", lambda x: (str(x),)),
    "PQ": ("pathlib", "PurePosixPath", lambda x: (str(x),)),
}
"""Tag to module, class and a function that gives the constructor's arguments, ints, strings and timedeltas; None means
that the value is sent as a reference."""
ATOM_TAGS = {(module, name): tag for tag, (module, name, _) in ATOMS.items()}


TIME_ZONES = (("datetime", "timezone"), ("zoneinfo", "ZoneInfo"))
"""Modules and names of the time zones with which a datetime is copied."""


def time_zone_types() -> list[type]:
    """The time zone types among them that are imported here."""
    return [getattr(sys.modules[module], name) for module, name in TIME_ZONES if module in sys.modules]


class WireError(ValueError):
    """Raised for a value that cannot be sent, or received data that is not a message."""


class Encoder:
    """Encodes the values of one message. `export` turns an object that is not copied into a reference, a JSON list.

    `kept` holds the mutable containers so far, in order; it starts with those of the message that is answered."""

    def __init__(
        self, export: Callable[[Any, "Encoder"], list[Any]], kept: Iterable[Any] = (), *, functions: bool = False
    ) -> None:
        self.export, self.functions = export, functions
        self.fresh: dict[int, bool] = {}
        """Numbers of the objects that this message describes, each with whether only as the class of another object."""
        self.is_implied = False
        self.kept = list(kept)
        self.numbers = {id(value): number for number, value in enumerate(self.kept)}
        self.depth = 0

    def encode(self, value: Any) -> Any:
        """The JSON for `value`. Raises WireError if it is nested too deeply."""
        kind = type(value)
        if value is None or kind is bool or kind is str or kind is float:
            return value
        if kind is int:
            return value if -(1 << 63) < value < (1 << 63) else ["I", hex(value)]
        if self.depth >= MAX_DEPTH:
            raise WireError(
                f"a value is nested more than {MAX_DEPTH} levels deep and cannot be sent between test and candidate"
            )
        self.depth += 1
        try:
            return self._container(value, kind) or self._atom(value, kind) or self.export(value, self)
        finally:
            self.depth -= 1

    def encode_implied(self, value: Any) -> Any:
        """The JSON for a value that the receiver may know but not use."""
        before, self.is_implied = self.is_implied, True
        try:
            return self.encode(value)
        finally:
            self.is_implied = before

    def content(self, value: Any) -> list[Any]:
        """The JSON for a mutable container in full, even if it occurred before."""
        kind = type(value)
        if kind is dict:
            return ["d", *(self.encode(item) for item in itertools.chain.from_iterable(value.items()))]
        if kind is list or kind is set:
            return ["l" if kind is list else "s", *map(self.encode, value)]
        if kind is bytearray:
            return ["y", to_text(value)]
        return ["a", value.dtype.str, list(value.shape), to_text(value.tobytes())]

    def _container(self, value: Any, kind: type) -> list[Any] | None:
        if kind is list or kind is dict or kind is set or kind is bytearray or is_array(value, kind):
            if (number := self.numbers.get(id(value))) is not None:
                return ["r", number]
            self.numbers[id(value)] = len(self.kept)
            self.kept.append(value)
            return self.content(value)
        if kind is tuple or kind is frozenset:
            return ["t" if kind is tuple else "f", *map(self.encode, value)]
        return None

    def _atom(self, value: Any, kind: type) -> list[Any] | None:
        if kind is bytes:
            return ["b", to_text(value)]
        if kind is complex:
            return ["c", value.real, value.imag]
        if kind is range or kind is slice:
            return ["R" if kind is range else "S", *map(self.encode, (value.start, value.stop, value.step))]
        if value is Ellipsis or value is NotImplemented:
            return ["E" if value is Ellipsis else "N"]
        if name := TYPE_NAMES.get(id(value)) or (self.functions and FUNCTION_NAMES.get(id(value))):
            return ["T", name]
        if kind is datetime.datetime and (type(value.tzinfo).__module__, type(value.tzinfo).__name__) in TIME_ZONES:
            return ["DA", *value.timetuple()[:6], value.microsecond, value.fold, self.encode(value.tzinfo)]
        if tag := ATOM_TAGS.get((kind.__module__, kind.__name__)):
            module, name, split = ATOMS[tag]
            real = getattr(sys.modules.get(module), name, None)
            parts = split(value) if kind is real else None
            return None if parts is None else [tag, *map(self.encode, parts)]
        numpy = sys.modules.get("numpy")
        if (
            numpy is not None
            and kind.__module__ == "numpy"
            and isinstance(value, numpy.generic)
            and DTYPE.fullmatch(value.dtype.str)
        ):
            return ["n", value.dtype.str, to_text(value.tobytes())]
        return None


class Decoder:
    """Decodes the values of one message. `resolve` turns a reference, a list with another tag, into an object."""

    def __init__(
        self, resolve: Callable[[list[Any], "Decoder"], Any], kept: Iterable[Any] = (), *, functions: bool = False
    ) -> None:
        self.resolve = resolve
        self.named: dict[str, Any] = {**TYPES, **FUNCTIONS} if functions else TYPES
        self.kept = list(kept)
        self.depth = 0

    def decode(self, data: Any) -> Any:
        """The value behind JSON. Raises WireError for anything that `Encoder` does not produce."""
        if not isinstance(data, list):
            if isinstance(data, dict):
                raise WireError("a message contains a JSON object where a value is expected")
            return data
        if not data or not isinstance(data[0], str) or self.depth > MAX_DEPTH + 1:
            raise WireError("a message contains a list without a tag, or is nested too deeply")
        self.depth += 1
        try:
            return self._tagged(data[0], data[1:], data)
        except (TypeError, ValueError, LookupError, OSError, ArithmeticError, AttributeError) as problem:
            raise (
                problem if isinstance(problem, WireError) else WireError(f"malformed {data[0]!r}: {problem}")
            ) from problem
        finally:
            self.depth -= 1

    def fill(self, target: Any, data: Any) -> None:
        """Replace the content of an existing container. Raises WireError for content of another type."""
        kind, tag = type(target), data[0]
        if kind is dict and tag == "d":
            pairs = list(self._pairs(data[1:]))
            target.clear()
            target.update(pairs)
        elif kind is list and tag == "l":
            target[:] = [self.decode(item) for item in data[1:]]
        elif kind is set and tag == "s":
            items = [self.decode(item) for item in data[1:]]
            target.clear()
            target.update(items)
        elif kind is bytearray and tag == "y":
            target[:] = to_bytes(data[1])
        elif tag == "a":
            target[...] = self._array(*data[1:])
        else:
            raise WireError(f"got content of kind {tag!r} for a {kind.__name__}")

    def _tagged(self, tag: str, parts: list[Any], data: list[Any]) -> Any:
        if tag in ("l", "d", "s", "y"):
            value: Any = {"l": list, "d": dict, "s": set, "y": bytearray}[tag]()
            self.kept.append(value)
            self.fill(value, data)
            return value
        if tag in ("t", "f"):
            return (tuple if tag == "t" else frozenset)(self.decode(item) for item in parts)
        if tag == "r":
            return self.kept[checked(parts[0], int)]
        if tag == "a":
            number = len(self.kept)
            self.kept.append(None)
            self.kept[number] = self._array(*parts)
            return self.kept[number]
        if tag == "n":
            return self._array(parts[0], [], parts[1])[()]
        if tag == "I":
            return int(checked(parts[0], str), 16)
        if tag == "b":
            return to_bytes(parts[0])
        if tag == "c":
            return complex(checked(parts[0], float), checked(parts[1], float))
        if tag in ("R", "S"):
            start, stop, step = (self.decode(item) for item in parts)
            return range(start, stop, step) if tag == "R" else slice(start, stop, step)
        if tag in ("E", "N"):
            return Ellipsis if tag == "E" else NotImplemented
        if tag == "T":
            if checked(parts[0], str) not in self.named:
                raise WireError(f"the name {parts[0]!r} must not be sent")
            return self.named[parts[0]]
        if tag in ATOMS:
            module, name, _ = ATOMS[tag]
            arguments = [checked(self.decode(item), int, str, datetime.timedelta) for item in parts]
            return getattr(importlib.import_module(module), name)(*arguments)
        if tag == "DA":
            year, month, day, *rest, fold, zone = (
                checked(self.decode(item), int, *time_zone_types()) for item in parts
            )
            hour, minute, second, microsecond = rest
            return datetime.datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)
        return self.resolve(data, self)

    def _pairs(self, items: list[Any]) -> Iterator[tuple[Any, Any]]:
        for at in range(0, len(items), 2):
            yield self.decode(items[at]), self.decode(items[at + 1])

    def _array(self, dtype: Any, shape: Any, content: Any) -> Any:
        if not DTYPE.fullmatch(checked(dtype, str)):
            raise WireError(f"array of type {dtype!r}; only numbers and text can be copied")
        try:
            numpy = importlib.import_module("numpy")
        except ImportError as problem:
            raise WireError("received an array, but numpy is not installed") from problem
        size = tuple(checked(length, int) for length in checked(shape, list))
        if min(size, default=0) < 0:
            raise WireError(f"array of shape {size}")
        return numpy.frombuffer(to_bytes(content), dtype).reshape(size).copy()


def is_array(value: Any, kind: type) -> bool:
    """Whether `value`, of type `kind`, is a numpy array, not of a subclass, of numbers or text."""
    numpy = sys.modules.get("numpy")
    return (
        numpy is not None and kind is getattr(numpy, "ndarray", None) and DTYPE.fullmatch(value.dtype.str) is not None
    )


def is_copied(value: Any) -> bool:
    """Whether values of this type are copied; the content may still hold references."""
    return value is None or type(value) in COPIED or (type(value).__module__, type(value).__name__) in ATOM_TAGS


COPIED = {bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, range, slice}


def checked(value: Any, *kinds: type) -> Any:
    """`value`, if its type is exactly one of `kinds`. Raises WireError otherwise."""
    if type(value) not in kinds:
        raise WireError(f"got a {type(value).__name__}, expected {' or '.join(k.__name__ for k in kinds)}")
    return value


def to_text(content: bytes | bytearray) -> str:
    """Bytes as base64 text."""
    return base64.b64encode(content).decode("ascii")


def to_bytes(text: Any) -> bytes:
    """Base64 text as bytes. Raises WireError."""
    return base64.b64decode(checked(text, str), validate=True)


def to_frame(message: dict[str, Any]) -> bytes:
    """Length (4 bytes, big-endian) and JSON. Raises WireError for a message over `MAX_FRAME_BYTES`."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(
            f"a value of {len(body)} bytes as JSON is too large to be sent between test and candidate (max "
            f"{MAX_FRAME_BYTES})"
        )
    return len(body).to_bytes(4, "big") + body


def from_frame(body: bytes) -> dict[str, Any]:
    """The message in a frame's body. Raises WireError if it is not a JSON object."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise WireError(f"not JSON: {str(problem)[:100]}") from problem
    if not isinstance(message, dict):
        raise WireError(f"got a {type(message).__name__}, expected a message")
    return message
