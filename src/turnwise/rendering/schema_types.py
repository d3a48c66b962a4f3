"""Finds the types that a JSON Schema allows for a value, through its references and alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
    (type(None), "null"),
)


def list_types(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that a schema in the document `root` names, itself or through references; empty if any value is
    allowed."""
    return frozenset(kind for option in list_options(schema, root) for kind in read_types(option))


def read_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types that a schema names itself, or that its choices have; () for any."""
    kinds = schema.get("type") or ()
    if not kinds and isinstance(schema.get("enum"), list):
        kinds = [next(name for kind, name in _KINDS if isinstance(value, kind)) for value in schema["enum"]]
    if isinstance(kinds, str):
        return (kinds,)
    return tuple(kind for kind in kinds if isinstance(kind, str)) if isinstance(kinds, list) else ()


def list_options(schema: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Iterate over the schema and those that it refers to or combines, each once."""
    waiting: list[Any] = [schema]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, Mapping) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each.get("$ref"), str):
            waiting.append(resolve_reference(each["$ref"], root))
        for keyword in ("anyOf", "oneOf", "allOf"):
            options = each.get(keyword)
            waiting.extend(options if isinstance(options, list) else ())


def resolve_reference(reference: str, root: Any) -> Any:
    """Return what a reference inside the document (`#/$defs/Point`) points to; None if it points nowhere."""
    if not reference.startswith("#") or (len(reference) > 1 and reference[1] != "/"):
        return None
    at = root
    for part in unquote(reference).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(at, Mapping) and key in at:
            at = at[key]
        elif isinstance(at, list) and key.isdecimal() and int(key) < len(at):
            at = at[int(key)]
        else:
            return None
    return at
