"""Arguments against schemas of every shape: what is legal passes, what is broken says nothing, nothing raises but
ToolFailure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwise.core.errors import ToolFailure
from turnwise.core.types import ToolSpec
from turnwise.rendering.schema_types import resolve_reference
from turnwise.tools.arguments import read_arguments


def take(**arguments: Any) -> None: ...


def read(parameters: dict[str, Any], arguments: dict[str, Any] | str, function: Any = take) -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return read_arguments(ToolSpec(name="f", description="", parameters=parameters), raw, function)


def refuse(parameters: dict[str, Any], arguments: dict[str, Any] | str, function: Any = take) -> str:
    with pytest.raises(ToolFailure) as caught:
        read(parameters, arguments, function)
    return str(caught.value)


def of(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, **more}


POINT = {
    "type": "object",
    "properties": {"at": {"type": "integer"}, "next": {"$ref": "#/$defs/Point"}},
    "required": ["at"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, {"any": [1]}),
        ({}, None),
        ({"anyOf": [{"type": "string"}, True]}, 3),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ({"type": ["string", "null"]}, None),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "enum": ["a"], "nullable": True}, None),
        ({"type": "number"}, 3),
        ({"type": "array", "items": True}, [1, "a"]),
        ({"type": "array", "items": None}, [1, "a"]),
        ({"type": "object", "properties": None, "required": None}, {"k": 1}),
        ({"type": "object", "additionalProperties": {}}, {"k": 1}),
        ({"const": None}, None),
        ({"$ref": "#/$defs/Point"}, {"at": 1, "next": {"at": 2}}),
        ({"allOf": [{"$ref": "#/$defs/Point"}]}, {"at": 1}),
        ({"$ref": "#/$defs/Missing"}, 5),
        ({"$ref": "https://example.invalid/schema.json"}, 5),
        ({"type": "dict"}, {"k": 1}),
        ({"type": "any"}, 1),
        ({"type": "string", "minLength": "two"}, "a"),
        ({"type": "string", "format": "date-time", "pattern": "^(a+)+$"}, "a" * 40 + "!"),
        ({"type": "array", "uniqueItems": True}, [{"k": 1}, {"k": 1}]),
        ({"properties": {"required": {"type": "string"}}, "required": "required"}, {"required": "a"}),
        ({"enum": [1, None]}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/properties/x/anyOf/0"}}]}, [1]),
    ],
)
def test_legal_values_pass_and_broken_schemas_say_nothing(schema: Any, value: Any) -> None:
    assert read(of(schema, **{"$defs": {"Point": POINT}}), {"x": value}) == {"x": value}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 3, "x of f fits none of the allowed types"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 3, "x of f fits several of the allowed types"),
        ({"type": ["string", "null"]}, 3, "x of f must be of type string or null, not integer"),
        ({"type": "integer"}, 3.5, "x of f must be of type integer, not number"),
        ({"type": "integer"}, True, "x of f must be of type integer, not boolean"),
        ({"enum": ["a", "é"]}, "b", 'x of f must be one of ["a", "é"]'),
        ({"type": "integer", "minimum": 2}, 1, "x of f: 1 is less than the minimum of 2"),
        ({"$ref": "#/$defs/Point"}, {"at": "1"}, "at of x of f must be of type integer, not string"),
        ({"$ref": "#/$defs/Point"}, {"at": 1, "next": {}}, "next of x of f: 'at' is a required property"),
        ({"type": "array", "items": {"$ref": "#/$defs/Point"}}, [{"at": 1}, 2], "item 1 of x of f must be of type"),
        (False, 1, "f takes no arguments; unknown: x"),
    ],
)
def test_what_does_not_fit_is_named(schema: Any, value: Any, expected: str) -> None:
    assert refuse(of(schema, **{"$defs": {"Point": POINT}}), {"x": value}).startswith(expected)


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": "integer"}, "3.0", 3),
        ({"type": ["integer", "null"]}, "1e2", 100),
        ({"type": "number"}, "3.0", 3.0),
        ({"type": ["integer", "number"]}, "3.0", 3.0),
        (True, "3.0", 3.0),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "-4.0", -4),
        ({"type": "array", "items": {"type": "integer"}}, "[1.0, 2]", [1, 2]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"k": 2.0}', {"k": 2}),
        ({"$ref": "#/$defs/Point"}, '{"at": 2.0, "next": {"at": 3.0}}', {"at": 2, "next": {"at": 3}}),
    ],
)
def test_a_whole_number_is_an_integer_where_one_is_wanted(schema: Any, written: str, value: Any) -> None:
    read_value = read(of(schema, **{"$defs": {"Point": POINT}}), f'{{"x": {written}}}')["x"]
    assert (repr(read_value), read_value) == (repr(value), value)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "object"},
        {"properties": None, "required": None},
        {"type": "object", "properties": {"x": None}, "required": []},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}},
        {"properties": [], "required": {"x": True}, "additionalProperties": "no"},
    ],
)
def test_schemas_that_say_little_take_what_is_given(parameters: dict[str, Any]) -> None:
    assert read(parameters, {"x": 1}) == {"x": 1}


def test_a_function_decides_which_names_it_takes() -> None:
    def narrow(x: int = 0, /, y: int = 0, *, z: int = 0) -> None: ...

    assert read(of({}), {"x": 1, "tool": 2, "self": 3}) == {"x": 1, "tool": 2, "self": 3}
    assert read({"properties": {"y": {}}}, {"y": 1, "z": 2}, narrow) == {"y": 1, "z": 2}
    assert refuse({"properties": {"y": {}}}, {"y": 1, "w": 2}, narrow) == "f takes y; unknown: w"
    assert refuse(of({}, required=["x"]), {}) == "f takes x; missing: x"
    assert refuse({"additionalProperties": False}, {"x": 1}) == "f takes no arguments; unknown: x"


@pytest.mark.parametrize(
    "raw", ['{"x": NaN}', '{"x": 1e999}', '{"x": "\\ud800"}', "{'x': 1}", '{"x": ' + "9" * 5000 + "}"]
)
def test_what_is_no_number_or_text_of_json_is_refused(raw: str) -> None:
    assert refuse(of({}), raw) == "the arguments of f are not valid JSON"


def test_nesting_without_end_is_refused() -> None:
    nested = '{"x": ' + '{"at": 1, "next": ' * 400 + '{"at": 1}' + "}" * 401
    assert refuse(of({"$ref": "#/$defs/Point"}, **{"$defs": {"Point": POINT}}), nested) == (
        "the arguments of f are nested too deeply"
    )


def test_a_reference_is_found_by_its_path() -> None:
    root = {"a/b": [{"~": {"é": 1}}], "c": 2}
    assert resolve_reference("#/a~1b/0/~0/%C3%A9", root) == 1
    assert resolve_reference("#", root) is root
    for reference in ("#/d", "#/a~1b/1", "#name", "other.json#/c"):
        assert resolve_reference(reference, root) is None
