"""Rows of the Berkeley Function Calling Leaderboard (BFCL) whose right calls are listed, or for which none is right.

    {"id", "question": [[{"role", "content"}, ...]], "function": [{"name", "description", "parameters"}],
     "ground_truth": [{name: {argument: [allowed values]}}, ...]}

BFCL publishes `ground_truth` in a file of the same name in the folder `possible_answer`, whose lines are `{"id",
"ground_truth"}`; that file is read if it lies beside the rows' file. A row without `ground_truth` whose id contains
"irrelevance", and a row with `[]`, want no call. Not supported: several turns (their functions are a simulated
computer), Java and JavaScript (values are source text), relevance (any call is right), and rows whose wanted calls no
arguments can fulfil.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.types import Message, ToolSpec
from turnwise.environments.data_rows import check_plain, read_rows
from turnwise.environments.file_splits import DataFile
from turnwise.environments.published_rows import list_keys, read_messages, read_text, shorten
from turnwise.rewards.allowed_calls import TYPES, AllowedCall

_ID = re.compile(r"[-_]\d+(-\d+)*$")
_SOURCE_TEXT = ("java", "javascript")
_SCHEMA_TYPES: Mapping[str, str | None] = {"float": "number", "dict": "object", "tuple": "array", "any": None}
"""BFCL's types that have another name in JSON Schema; None if any value fits."""
ANSWERS_FOLDER = "possible_answer"

Answers = Mapping[str, Any]
"""`ground_truth` by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One request."""

    messages: tuple[Message, ...]
    """The messages; the last is the user's."""
    functions: tuple[Mapping[str, Any], ...]
    """The functions as the row describes them: `name`, `description`, `parameters`."""
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    """Name, and allowed values by argument, of every wanted call, in any order; empty if none is right."""
    kind: str
    """The category: the id without its number."""

    @property
    def asks(self) -> tuple[object, ...]:
        """What the model reads: rows with equal values are copies."""
        return self.messages, self.functions


def find_answers(paths: Iterable[str]) -> tuple[Answers, tuple[DataFile, ...]]:
    """Read the answers in `possible_answer` folders beside these files. Also returns the files read. Raises DataError
    by line."""
    answers: dict[str, Any] = {}
    found: list[DataFile] = []
    for path in dict.fromkeys(map(Path, paths)):
        beside = path.parent / ANSWERS_FOLDER / path.name
        if not beside.is_file():
            continue
        num_before = len(answers)
        for number, row in read_rows(beside):
            if not isinstance(row.get("id"), str) or "ground_truth" not in row:
                raise DataError(f'{beside}:{number}: keys {list_keys(row)}; expected "id" and "ground_truth"')
            if answers.setdefault(row["id"], row["ground_truth"]) != row["ground_truth"]:
                raise DataError(f'{beside}:{number}: "id" {row["id"]!r} already has another "ground_truth"; keep one')
        found.append(DataFile(path=beside, num_rows=len(answers) - num_before))
    return answers, tuple(found)


def to_call_row(row: Mapping[str, Any], answers: Answers) -> CallRow:
    """Convert a row of a file. Raises DataError naming the field, its value and what was expected."""
    check_plain(row)
    name = row.get("id") if isinstance(row.get("id"), str) else ""
    kind = _ID.sub("", str(name))
    if set(_SOURCE_TEXT).intersection(kind.split("_")):
        raise DataError(
            f'"id" is {name!r}: values in Java and JavaScript are source text, but only JSON values can be compared'
        )
    messages = _read_question(row.get("question"))
    functions = tuple(_read_functions(row.get("function")))
    described = {str(function["name"]): function for function in functions}
    truth = _from_text(row["ground_truth"] if row.get("ground_truth") is not None else answers.get(str(name)))
    if truth is None and "irrelevance" not in kind.split("_"):
        raise DataError(
            f'"id" is {name!r}, without "ground_truth" here or in {ANSWERS_FOLDER}/; expected a list of allowed calls'
        )
    calls = tuple(_read_calls([] if truth is None else truth, described))
    return CallRow(messages=messages, functions=functions, calls=calls, kind=kind or "file")


def to_spec(function: Mapping[str, Any]) -> ToolSpec:
    """Return what the model is told about a function, with JSON Schema's names of types."""
    parameters = _to_schema(function["parameters"])
    return ToolSpec(name=function["name"], description=function["description"], parameters=parameters)


def to_allowed(
    calls: Iterable[tuple[str, Mapping[str, Any]]], functions: Iterable[Mapping[str, Any]]
) -> list[AllowedCall]:
    """Return the wanted calls in the form by which a reply is judged."""
    parameters = {function["name"]: function["parameters"] for function in functions}
    return [AllowedCall(name=name, allowed=allowed, parameters=parameters[name]) for name, allowed in calls]


def _read_question(value: object) -> tuple[Message, ...]:
    turns = _from_text(value)
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, list) for turn in turns):
        raise DataError(f'"question" is {shorten(turns)}; expected [[{{"role", "content"}}, ...]]')
    if len(turns) > 1:
        raise DataError(
            f'"question" has {len(turns)} turns; expected one, because nothing runs the functions between turns'
        )
    messages = read_messages(turns[0], "question[0]")
    if messages[-1].role != "user":
        raise DataError(f'"question[0]" ends with a message from {messages[-1].role!r}; expected a user message')
    return messages


def _read_functions(value: object) -> Iterable[Mapping[str, Any]]:
    listed = _from_text(value)
    functions = listed if isinstance(listed, list) else [listed]
    names: set[str] = set()
    for index, function in enumerate(functions):
        place = f"function[{index}]"
        if not isinstance(function, dict):
            raise DataError(f'"{place}" is {shorten(function)}; expected {{"name", "description", "parameters"}}')
        name = read_text(function.get("name"), f"{place}.name")
        parameters = _from_text(function.get("parameters"))
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        required = parameters.get("required") or [] if isinstance(parameters, dict) else None
        if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
            raise DataError(f'"{place}.parameters" is {shorten(parameters)}; expected {{"properties", "required"}}')
        if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
            raise DataError(f'"{place}.parameters.required" is {shorten(required)}; expected a list of names')
        for argument, described in properties.items():
            _check_type(described, f"{place}.parameters.properties.{argument}")
        if name in names:
            raise DataError(f'"{place}.name" is {name!r}, like an earlier function\'s; expected different names')
        names.add(name)
        description = function.get("description")
        yield {
            "name": name,
            "description": description if isinstance(description, str) else "",
            "parameters": {**parameters, "required": required},
        }


def _check_type(described: Mapping[str, Any], place: str) -> None:
    items = described.get("items")
    for each, where in ((described, place), (items if isinstance(items, dict) else {}, f"{place}.items")):
        kind = each.get("type")
        if kind is not None and (not isinstance(kind, str) or kind not in TYPES):
            raise DataError(f'"{where}.type" is {shorten(kind)}; expected one of {", ".join(TYPES)}')


def _read_calls(value: object, functions: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, list):
        raise DataError(f'"ground_truth" is {shorten(value)}; expected [{{name: {{argument: [allowed values]}}}}]')
    for index, each in enumerate(value):
        place = f"ground_truth[{index}]"
        allowed = next(iter(each.values())) if isinstance(each, dict) and len(each) == 1 else None
        if not isinstance(allowed, dict):
            raise DataError(f'"{place}" is {shorten(each)}; expected {{name: {{argument: [allowed values]}}}}')
        (name,) = each
        if name not in functions:
            raise DataError(f'"{place}" calls {name!r:.80}; expected one of {shorten(list(functions))}')
        for argument, values in allowed.items():
            _check_allowed(values, f"{place}.{name}.{argument}")
        if AllowedCall(name=name, allowed=allowed, parameters=functions[name]["parameters"]).example() is None:
            raise DataError(f'"{place}" is {shorten(each)}; no call can match it, given the parameters of {name!r:.80}')
        yield name, allowed


def _check_allowed(values: object, place: str) -> None:
    if not isinstance(values, list) or not values:
        raise DataError(f'"{place}" is {shorten(values)}; expected a list of at least one allowed value')
    for option in values:
        for each in option if isinstance(option, list) else [option]:
            if isinstance(each, dict):
                for key, inner in each.items():
                    if not isinstance(inner, list) or not inner:
                        raise DataError(f'"{place}.{key}" is {shorten(inner)}; expected a list of allowed values')


def _from_text(value: object) -> Any:
    """Return the value that a text column contains as JSON, as in Parquet files; other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return value
    return read


def _to_schema(described: Any) -> Any:
    """Return a description with JSON Schema's types."""
    if not isinstance(described, dict):
        return described
    schema: dict[str, Any] = {}
    for key, value in described.items():
        if key == "properties" and isinstance(value, dict):
            schema[key] = {name: _to_schema(each) for name, each in value.items()}
        elif key == "items":
            schema[key] = _to_schema(value)
        elif key == "type" and isinstance(value, str) and value in _SCHEMA_TYPES:
            schema |= {key: named} if (named := _SCHEMA_TYPES[value]) else {}
        else:
            schema[key] = value
    return schema
