"""Reads JSON Schemas of tools from any source: extracts the part that can be checked, resolves its references, and
validates values.

Schemas come from functions, servers and packages, and many break the standard somewhere (`"required": null`, the type
"dict"). A part that is not valid JSON Schema is ignored, and the tool itself judges the value. The same applies to
`pattern`, whose search could take forever on text from a model, and to references to other documents, which are never
fetched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from turnwise.rendering.schema_types import list_options, list_types

_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})
_LITERALS = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are not schemas."""
_UNCHECKED = frozenset({"pattern", "patternProperties", "$schema", "$id", "format", "uniqueItems"})
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that map names to schemas; the names may coincide with keywords."""
_MAX_FAULTS = 50
"""Maximum number of faulty keywords that are removed one by one; with more, the schema is ignored."""


def read_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkable part of the schema of an arguments object; `properties` and `required` are always present,
    with the right types."""
    return _clean_schema(json.dumps(parameters, default=_as_json))[0]


def validate(arguments: dict[str, Any], parameters: Mapping[str, Any]) -> Any:
    """Return the first error that the `jsonschema` package finds in these arguments; None if they fit. Raises
    RecursionError for values that are nested too deeply."""
    _, validator = _clean_schema(json.dumps(parameters, default=_as_json))
    return next(validator.iter_errors(arguments), None)


def make_whole(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    """Convert whole floats in the value to int where the schema wants an integer and no other number: 3.0 is an integer
    by the standard, but a Python function cannot count to it."""
    if not isinstance(value, float | dict | list):
        return value
    options = list(list_options(schema, root))
    if isinstance(value, float):
        kinds = list_types(schema, root)
        return int(value) if value.is_integer() and "integer" in kinds and "number" not in kinds else value
    if isinstance(value, list):
        items = next((option["items"] for option in options if "items" in option), True)
        first = next((option["prefixItems"] for option in options if "prefixItems" in option), ())
        return [make_whole(item, first[at] if at < len(first) else items, root) for at, item in enumerate(value)]
    named = {key: each for option in options for key, each in option.get("properties", {}).items()}
    others = next((option["additionalProperties"] for option in options if "additionalProperties" in option), True)
    return {key: make_whole(item, named.get(key, others), root) for key, item in value.items()}


def _as_json(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


@lru_cache(maxsize=1024)
def _clean_schema(text: str) -> tuple[dict[str, Any], Any]:
    """Return the checkable part of a schema, and a validator for it."""
    from jsonschema.exceptions import SchemaError

    kind = _validator_class()
    schema = _drop_unchecked(json.loads(text))
    root: dict[str, Any] = schema if isinstance(schema, dict) else {}
    for _ in range(_MAX_FAULTS):
        try:
            kind.check_schema(root)
            break
        except SchemaError as fault:
            if not _drop(root, list(fault.absolute_path)):
                root = {}
        except RecursionError:
            root = {}
    else:
        root = {}
    root.setdefault("properties", {})
    root.setdefault("required", [])
    from referencing import Registry

    return root, kind(root, registry=Registry())


def _drop_unchecked(schema: Any) -> Any:
    """Return a schema without the keywords and types that are ignored here, and without those that are null."""
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    opens = "patternProperties" in schema
    for key, value in schema.items():
        if key in _LITERALS:
            kept[key] = value
        elif value is None or key in _UNCHECKED or (opens and key == "additionalProperties"):
            continue
        elif key == "type":
            kinds = [value] if isinstance(value, str) else value
            if isinstance(kinds, list) and kinds and all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
                kept[key] = value
        elif key in _NAMED and isinstance(value, dict):
            kept[key] = {name: True if each is None else _drop_unchecked(each) for name, each in value.items()}
        elif isinstance(value, list):
            kept[key] = [_drop_unchecked(each) for each in value]
        else:
            kept[key] = _drop_unchecked(value)
    return kept


def _drop(root: Any, path: list[Any]) -> bool:
    """Remove the faulty value at a path from a schema, together with its keyword; returns False if that leaves the same
    fault."""
    if not path:
        return False
    *way, last = path
    at = root
    for key in way:
        at = at[key]
    if isinstance(at, dict):
        del at[last]
        return True
    return _drop(root, way)


@lru_cache(maxsize=1)
def _validator_class() -> Any:
    """Return a validator class for JSON Schema 2020-12 with OpenAPI's `nullable`, which ignores references that cannot
    be resolved."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing.exceptions import Unresolvable

    def unless_null(check: Any) -> Any:
        def checked(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
            if instance is None and schema.get("nullable") is True:
                return ()
            return check(validator, wanted, instance, schema)

        return checked

    def follow(validator: Any, reference: Any, instance: Any, schema: Any) -> Any:
        try:
            yield from Draft202012Validator.VALIDATORS["$ref"](validator, reference, instance, schema)
        except Unresolvable:
            return

    known = Draft202012Validator.VALIDATORS
    return extend(
        Draft202012Validator,
        {
            **{word: unless_null(known[word]) for word in ("type", "enum", "const", "anyOf", "oneOf", "allOf")},
            "$ref": follow,
        },
    )
