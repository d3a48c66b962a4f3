"""Reads fields of a request; what is wrong with one is a refusal that names it. A null counts as missing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.core.messages import ToolSpec
from turnwise.gateway.protocols.pictures import PictureReader
from turnwise.gateway.refusals import Refusal

MAX_TOOLS = 512
_GRAMMAR = "send response_format with a JSON schema"
EXTENSIONS = {
    "min_tokens": "leave it out",
    "ignore_eos": "leave it out",
    "stop_token_ids": "send stop strings",
    "bad_words": "leave it out: it changes the policy's distribution",
    "allowed_token_ids": "leave it out: it changes the policy's distribution",
    "length_penalty": "leave it out",
    "use_beam_search": "leave it out",
    "echo": "the prompt is yours already",
    "prompt_logprobs": "the log-probabilities of sampled tokens alone are known",
    "continue_final_message": "end with a message that is not the assistant's",
    "chat_template": "the template is the policy's",
    "chat_template_kwargs": "the options of the template are the policy's",
    "documents": "put them into a message",
    "grammar": _GRAMMAR,
    "json_schema": _GRAMMAR,
    "structured_outputs": _GRAMMAR,
    "guided_json": _GRAMMAR,
    "guided_regex": _GRAMMAR,
    "guided_choice": _GRAMMAR,
    "guided_grammar": _GRAMMAR,
    "regex": _GRAMMAR,
    "ebnf": _GRAMMAR,
}
"""Fields that other servers add to the protocols and that cannot be honoured, with what to do instead."""


class Fields:
    """The fields of one JSON object in a request."""

    def __init__(self, value: Any, path: str = "", pictures: PictureReader | None = None) -> None:
        """`path` names the object in refusals; "" for the request itself. `pictures` reads those in it; None if the
        policy reads text."""
        if not isinstance(value, Mapping):
            raise Refusal(f"must be an object, not {show(value)}", field=path or None)
        self.value: Mapping[str, Any] = value
        self.pictures = pictures
        self._path = path

    def name(self, key: str) -> str:
        """Return the name of a field in refusals."""
        return f"{self._path}.{key}" if self._path else key

    def refuse(self, key: str, problem: str) -> Refusal:
        """Build the refusal for a field."""
        return Refusal(problem, field=self.name(key))

    def get(self, key: str) -> Any:
        """Return the value of a field; None if it is missing."""
        return self.value.get(key)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text. Without a default the field is needed."""
        value = self.value.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.refuse(key, f"must be a string, not {show(value)}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a truth value."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(key, f"must be true or false, not {show(value)}")
        return default if value is None else value

    def integer(self, key: str, *, low: int, high: int = 2**63) -> int | None:
        """Return an integer between two bounds, inclusive; None if it is missing."""
        value = self.value.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            bounds = f"from {low}" if high == 2**63 else f"from {low} to {high}"
            raise self.refuse(key, f"must be an integer {bounds}, not {show(value)}")
        return value

    def number(self, key: str, *, low: float, high: float) -> float | None:
        """Return a number between two bounds, inclusive; None if it is missing."""
        value = self.value.get(key)
        if value is None:
            return None
        number = None if isinstance(value, bool) or not isinstance(value, int | float) else _to_float(value)
        if number is None or not low <= number <= high:
            raise self.refuse(key, f"must be a number from {low:g} to {high:g}, not {show(value)}")
        return number

    def top_k(self) -> int | None:
        """Return how many of the likeliest tokens count, a field of other servers: -1 and 0 are all."""
        value = self.integer("top_k", low=-1)
        return None if value is None else max(0, value)

    def neutral(self, key: str, value: float) -> None:
        """Refuse a number other than the one that changes nothing."""
        if self.number(key, low=-math.inf, high=math.inf) not in (None, value):
            raise self.refuse(key, f"is not supported; leave it out, or send {value:g}")

    def items(self, key: str) -> Sequence[Any]:
        """Return a list; empty if it is missing."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, list):
            raise self.refuse(key, f"must be a list, not {show(value)}")
        return value or []

    def objects(self, key: str) -> Iterator[Fields]:
        """Return the objects of a list."""
        return (Fields(value, f"{self.name(key)}[{at}]", self.pictures) for at, value in enumerate(self.items(key)))

    def object(self, key: str) -> Fields:
        """Return an object; an empty one if it is missing."""
        value = self.value.get(key)
        return Fields({} if value is None else value, self.name(key), self.pictures)

    def texts(self, key: str, *, most: int) -> tuple[str, ...]:
        """Return a string or a list of strings, none of them empty, as a tuple."""
        value = self.value.get(key)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) and each for each in values):
            raise self.refuse(key, f"must be a string or a list of strings, not {show(value)}")
        if len(values) > most:
            raise self.refuse(key, f"has {len(values)} strings; send {most} or fewer")
        return tuple(values)

    def forbid(self, keys: Mapping[str, str]) -> None:
        """Refuse fields whose meaning cannot be honoured. `keys` has the remedy for each; null, false, 0 and empty
        values ask for nothing."""
        for key, remedy in keys.items():
            if self.value.get(key):
                raise self.refuse(key, f"is not supported; {remedy}")


def _to_float(value: float) -> float:
    """Return a number as a float, infinite if it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def show(value: Any) -> str:
    """Return a value as it is shown in a refusal."""
    return "nothing" if value is None else repr(value)[:60]


def read_tools(tools: Sequence[ToolSpec], names: Sequence[str], schema_key: str) -> tuple[ToolSpec, ...]:
    """Return the tools of a request, checked. `names` are their fields, with the schema in `schema_key`.

    Raises Refusal for a schema that is none, a name with spaces or without letters, and two tools with one name.
    """
    if len(tools) > MAX_TOOLS:
        raise Refusal(f"has {len(tools)} tools; send {MAX_TOOLS} or fewer", field="tools")
    seen: set[str] = set()
    for tool, field in zip(tools, names, strict=True):
        if not tool.name or any(letter.isspace() for letter in tool.name):
            raise Refusal(f"must be a name without spaces, not {tool.name[:60]!r}", field=f"{field}.name")
        if tool.name in seen:
            raise Refusal(f"two tools are called {tool.name!r}; rename one", field=f"{field}.name")
        seen.add(tool.name)
        check_schema(tool.parameters, f"{field}.{schema_key}")
    return tuple(tools)


def check_schema(schema: Mapping[str, Any], field: str) -> None:
    """Raise Refusal if a JSON schema is none."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = "".join(f"[{part!r}]" for part in error.absolute_path)
        raise Refusal(f"is no JSON schema: at {place or 'its top'} {error.message[:200]}", field=field) from None
    except RecursionError:
        raise Refusal("is no JSON schema: it is nested too deeply", field=field) from None


def write_arguments(value: Any, field: str) -> str:
    """Return the arguments of an echoed call as text: some clients send an object."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if not isinstance(value, Mapping) or any(isinstance(v, float) and not math.isfinite(v) for v in value.values()):
        raise Refusal(f"must be an object or its JSON, not {show(value)}", field=field)
    return json.dumps(value, ensure_ascii=False)
