"""Recipe files, then overrides, to one checked tree; and the resolved tree back from a run folder."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from turnwise.config.resolve import check_sections
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError


def load_config(files: Sequence[Path], overrides: Sequence[str] = ()) -> RunConfig:
    """Files merged left to right, then `a.b=value`.

    Raises ConfigError naming the file or override, the key and the remedy: an unknown key with the nearest known one, a
    wrong type with what is expected, a missing file, broken TOML with its line, sections that contradict each other.
    """
    tree: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for path in files:
        _merge(tree, _read(path), str(path), "", sources)
    _lay_over(tree, overrides, sources)
    return check_sections(_validate(tree, sources))


def parse_value(raw: str) -> Any:
    """A TOML value; text that is none is a string. `3` is an int, `true` a bool, `[1, 2]` a list, `abc` a string."""
    text = raw.strip()
    try:
        document = tomllib.loads(f"value = {text}")
    except ValueError:  # not only TOMLDecodeError: Python refuses integers of thousands of digits
        return text
    return document["value"] if len(document) == 1 else text


def dump_resolved(config: RunConfig) -> dict[str, Any]:
    """Plain data that `load_resolved` reads back to an equal tree."""
    return config.model_dump(mode="json")


def load_resolved(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The tree of a run folder, then `a.b=value`. Raises ConfigError naming the path when it cannot be read, or as
    `load_config` does."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise ConfigError(
            f"{path} cannot be read ({cause}); it is written when a run starts, is this a run folder?"
        ) from cause
    sources: dict[str, str] = {}
    _lay_over(tree, overrides, sources)
    config = _validate(tree, sources, str(path))
    return check_sections(config) if overrides else config


def _lay_over(tree: dict[str, Any], overrides: Sequence[str], sources: dict[str, str]) -> None:
    """Merge `a.b=value` into `tree` in place."""
    for override in overrides:
        key, separator, raw = override.partition("=")
        key = key.strip()
        if not separator or not key or "" in key.split("."):
            raise ConfigError(f"override {override!r} is not of the form section.key=value")
        value: Any = parse_value(raw)
        for part in reversed(key.split(".")):
            value = {part: value}
        _merge(tree, value, f"override {override!r}", "", sources)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"recipe file {str(path)!r} does not exist; name a TOML file, or an override as section.key=value"
        ) from None
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"recipe file {str(path)!r} cannot be read: {cause}") from cause
    except tomllib.TOMLDecodeError as cause:
        raise ConfigError(f"recipe file {str(path)!r} is not valid TOML: {cause}") from cause


def _merge(tree: dict[str, Any], new: Mapping[str, Any], source: str, prefix: str, sources: dict[str, str]) -> None:
    """Lay `new` over `tree` in place, remembering which source set each key."""
    for key, value in new.items():
        path = f"{prefix}{key}"
        sources[path] = source
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _merge(tree[key], value, source, f"{path}.", sources)
        else:
            if isinstance(value, dict):
                value = dict(value)
                tree[key] = {}
                _merge(tree[key], value, source, f"{path}.", sources)
            else:
                tree[key] = value


def _validate(tree: dict[str, Any], sources: Mapping[str, str], otherwise: str = "the recipe") -> RunConfig:
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        where = next((sources[p] for p in _prefixes(key) if p in sources), otherwise)
        if problem["type"] == "extra_forbidden":
            raise ConfigError(f"{where}: unknown key {key!r}; {_nearest(key)}") from None
        raise ConfigError(
            f"{where}: {key} is {problem['input']!r}; {_expectation(problem['type'], problem['msg'])}"
        ) from None


def _prefixes(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _expectation(kind: str, message: str) -> str:
    if kind in ("model_type", "dict_type"):
        return "it must be a table"
    if kind == "invalid-json-value":
        return "it must be a number, a string, a boolean, a list or a table"
    return message.replace("Input should be", "it must be", 1)


def _nearest(key: str) -> str:
    known = leaves(RunConfig)
    section, last = key.split(".")[0], key.split(".")[-1]
    namesakes = [leaf for leaf in known if leaf.split(".")[-1] == last]
    siblings = [leaf for leaf in known if leaf.startswith(f"{section}.")]
    candidates = namesakes or siblings or list(RunConfig.model_fields)
    return f"did you mean {difflib.get_close_matches(key, candidates, n=1, cutoff=0.0)[0]!r}?"


def leaves(section: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of every option of the tree."""
    names: list[str] = []
    for name, field in section.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names += leaves(annotation, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}")
    return names
