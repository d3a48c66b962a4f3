"""Every option of a recipe as a row: its name, type, default and meaning, as the sections' docstrings say it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from turnwise.config.section import OneOf

LABEL = "LABEL"
"""Stands for the key of a table whose keys are free."""
_TYPES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    NoneType: "none",
    list: "list",
    dict: "table",
}
_BOUNDS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, or a section of them."""

    name: str
    """With its sections, such as "rollout.group_size"."""
    type: str
    """Plain words: "integer, at least 1"; "section" where options stand below it."""
    default: str
    """As TOML or JSON; "required" where there is none, "" for a section."""
    text: str
    """Its docstring, in one line."""

    @property
    def meaning(self) -> str:
        """The first sentence of the text."""
        return re.split(r"(?<=[.?!])\s", self.text, maxsplit=1)[0]

    @property
    def is_section(self) -> bool:
        """Whether options stand below it."""
        return self.type == "section"


def describe_options(section: type[BaseModel], prefix: str = "", *, of: str = "") -> list[Option]:
    """Every option of a section and of the sections inside it, each section before its options.

    `of` says what they belong to, in front of every text."""
    rows: list[Option] = []
    for name, field in section.model_fields.items():
        path = f"{prefix}{name}"
        inner, is_free = _find_section(field.annotation)
        if inner is None or is_free:
            rows.append(
                Option(
                    name=path,
                    type=_describe_type(field),
                    default=_describe_default(field),
                    text=_join(f"{of}: {field.description}" if of else field.description or ""),
                )
            )
        else:
            text = field.description or inner.__doc__ or ""
            rows.append(Option(name=path, type="section", default="", text=_join(text)))
        if inner is not None:
            rows += describe_options(inner, f"{path}.{LABEL}." if is_free else f"{path}.")
    return rows


def describe_free_options(tables: Mapping[str, Mapping[str, Any]], prefix: str, *, of: str) -> list[Option]:
    """A row for each name in tables of defaults by method; `of` is the option that names the method."""
    by_name: dict[str, dict[str, Any]] = {}
    for method, defaults in tables.items():
        for name, default in defaults.items():
            by_name.setdefault(name, {})[method] = default
    rows = []
    for name, defaults in by_name.items():
        values = list(dict.fromkeys(map(_to_toml, defaults.values())))
        by_value = [
            f"{value} of {', '.join(method for method, each in defaults.items() if _to_toml(each) == value)}"
            for value in values
        ]
        text = f"For {of} = {', '.join(defaults)}: `turnwise algorithms` has the formula."
        default = values[0] if len(values) == 1 else "; ".join(by_value)
        rows.append(Option(name=f"{prefix}{name}", type="of the method", default=default, text=text))
    return rows


def list_options(section: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of every option of a section and of the sections inside it; those below a free key are left out."""
    rows = describe_options(section, prefix)
    return [row.name for row in rows if not row.is_section and LABEL not in row.name.split(".")]


def find_rows(rows: Sequence[Option], word: str) -> list[Option]:
    """The rows that a word means: the option or section of that name (a section with what stands below it), else those
    whose name has the word, else those whose text has it."""
    word = word.strip().strip(".")
    exact = [row for row in rows if row.name == word]
    if exact:
        return [*exact, *(row for row in rows if exact[0].is_section and row.name.startswith(f"{word}."))]
    folded = word.casefold()
    named = [row for row in rows if folded in row.name.casefold()]
    return named or [row for row in rows if folded in row.text.casefold()]


def _find_section(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section that an option holds, and whether it holds one per free key; None where it holds a value."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part, get_origin(annotation) is dict
    return None, False


def _describe_type(field: FieldInfo) -> str:
    for each in field.metadata:
        if isinstance(each, OneOf):
            return " or ".join(map(_to_toml, each.names))
    bounds = [
        f"{words} {getattr(each, bound):g}"
        for each in field.metadata
        for bound, words in _BOUNDS
        if hasattr(each, bound)
    ]
    return ", ".join([_name_type(field.annotation), *bounds])


def _name_type(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(_to_toml(value) for value in get_args(annotation))
    if origin in (UnionType, Union):
        return " or ".join(dict.fromkeys(_name_type(part) for part in get_args(annotation)))
    if origin is list:
        return f"list of {_name_type(get_args(annotation)[0])}"
    return _TYPES.get(origin or annotation, "value")


def _describe_default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return _to_toml(field.default_factory())  # type: ignore[call-arg]
    return "required" if field.is_required() else _to_toml(field.default)


def _to_toml(value: Any) -> str:
    """A value as a recipe writes it; "none" has no spelling there."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _join(text: str) -> str:
    return " ".join(text.split())


def list_leaves(tree: Any, prefix: str) -> Iterator[str]:
    """Dotted names of the values of a table, that of the table itself where it is empty or no table."""
    if not isinstance(tree, dict) or not tree:
        yield prefix
        return
    for name, value in tree.items():
        yield from list_leaves(value, f"{prefix}.{name}" if prefix else str(name))
