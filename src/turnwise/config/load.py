"""Load recipe files and overrides into one checked config, and read a run folder's config back."""

from __future__ import annotations

import copy
import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnwise.config.options import list_leaves, list_options
from turnwise.config.other_names import find_other_name
from turnwise.config.resolve import check_sections
from turnwise.config.run import RunConfig
from turnwise.config.shipped import find_shipped, place_data
from turnwise.config.small_model import fill_model
from turnwise.config.values import expand_home, parse_bare
from turnwise.core.errors import ConfigError

Source = Path | Mapping[str, Any]
"""A recipe file or the short name of an installed one (`search_r1/tiny`), or its tables."""
_ALTERNATIVE = re.compile(r"(?:literal|list|tuple|dict|constrained-\w+)\[.*\]")
"""How pydantic names one of several types of an option."""


def load_config(
    files: Sequence[Source], overrides: Sequence[str] = (), *, changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """Merge recipe files left to right, then apply the overrides `a.b=value` and the `changes` by name, in order.

    Files merge table by table. An override replaces what it names: `a.b=1` one option, `a.b={...}` the whole table. A
    recipe without a model gets the small one (`config/small_model.py`).

    Raises ConfigError naming the file or override, the key and the remedy: an unknown key with the nearest known one, a
    wrong type with the expected one, a missing file, broken TOML with its line, sections that contradict each other.
    """
    tree: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for file in files:
        table, source = (_read_recipe(file), str(file)) if isinstance(file, Path) else (file, "the recipe")
        _merge(tree, table, source, "", sources)
    _apply_overrides(tree, overrides, sources)
    for key, value in (changes or {}).items():
        _set_option(tree, key, copy.deepcopy(value), f"override {key!r}", sources)
    return check_sections(fill_model(_validate(expand_home(tree), sources, "the recipe")))


def parse_value(text: str) -> Any:
    """Parse a TOML value; any other text is a string. `3` is an int, `true` a bool, `[1, 2]` and `[a, b]` are lists,
    `abc` is a string."""
    text = text.strip()
    try:
        document = tomllib.loads(f"value = {text}")
    except ValueError:  # not only TOMLDecodeError: Python refuses integers of thousands of digits
        return parse_bare(text)
    return document["value"] if len(document) == 1 else text


def dump_resolved(config: RunConfig) -> dict[str, Any]:
    """Return the config as plain data that `load_resolved` reads back to an equal config."""
    return config.model_dump(mode="json")


def load_resolved(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read the config of a run folder, then apply the overrides.

    Raises ConfigError naming the path if it cannot be read, otherwise as `load_config` does.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise ConfigError(
            f"cannot read {path} ({cause}); it is written when a run starts; is this a run folder?"
        ) from cause
    sources: dict[str, str] = {}
    _apply_overrides(tree, overrides, sources)
    config = _validate(tree, sources, str(path))
    return check_sections(fill_model(config)) if overrides else config


def change_resolved(
    config: RunConfig, overrides: Sequence[str] = (), *, changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """A resolved config with overrides and `changes` laid over it. Raises ConfigError as `load_config` does."""
    return load_config([dump_resolved(config)], overrides, changes=changes) if overrides or changes else config


def list_moves(*, device: str | None, ranks: int | None = None) -> list[str]:
    """The overrides with which a run goes on elsewhere than it began."""
    moves = {"model.device": device, "train.ranks": ranks}
    return [f"{option}={value}" for option, value in moves.items() if value is not None]


def _apply_overrides(tree: dict[str, Any], overrides: Sequence[str], sources: dict[str, str]) -> None:
    """Set each `a.b=value` in `tree` in place; a value that is a table replaces the table it names."""
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator:
            raise ConfigError(f"override {override!r} is not of the form section.key=value")
        _set_option(tree, key.strip(), parse_value(text), f"override {override!r}", sources)


def _set_option(tree: dict[str, Any], key: str, value: Any, source: str, sources: dict[str, str]) -> None:
    """Set the option or table `a.b` of `tree` in place, and record who set it."""
    if not key or "" in key.split("."):
        raise ConfigError(f"{source} is not of the form section.key=value")
    if (plain := key.lstrip("+-~")) != key:
        raise ConfigError(f"{source} has {key[: -len(plain)]!r} in front; options are set and added by name alone")
    if '"' in key or "'" in key:
        raise ConfigError(f'{source} has quotes in its name; set the whole table instead, TABLE={{"a.b" = VALUE}}')
    *parents, last = key.split(".")
    table = tree
    for name in parents:
        if not isinstance(table.get(name), dict):
            table[name] = {}
        table = table[name]
    table[last] = os.fspath(value) if isinstance(value, os.PathLike) else value
    for stale in [path for path in sources if path.startswith(f"{key}.")]:
        del sources[stale]
    sources[key] = source


def _read_recipe(path: Path) -> dict[str, Any]:
    """The tables of a file, or of the installed recipe of that name, whose data files are found where it is."""
    if "/" in path.as_posix() and not path.is_absolute() and not path.exists():
        shipped = find_shipped(path.as_posix())
        tables: dict[str, Any] = place_data(_read_file(shipped.path), shipped.root)
        return tables
    return _read_file(path)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(
            f"recipe file {str(path)!r} does not exist; name a TOML file, an installed recipe (`turnwise recipes`), or "
            "an override as section.key=value"
        ) from None
    except UnicodeDecodeError as cause:
        raise ConfigError(f"recipe file {str(path)!r} is not UTF-8 ({cause}); save it as UTF-8") from cause
    except OSError as cause:
        raise ConfigError(f"cannot read recipe file {str(path)!r}: {cause}") from cause
    except tomllib.TOMLDecodeError as cause:
        other = path.suffix.lower() in (".yaml", ".yml", ".json", ".py")
        remedy = "; a recipe is TOML: a line [train], then lines such as steps = 100" if other else ""
        raise ConfigError(f"recipe file {str(path)!r} is not valid TOML: {cause}{remedy}") from cause


def _merge(tree: dict[str, Any], new: Mapping[str, Any], source: str, prefix: str, sources: dict[str, str]) -> None:
    """Merge `new` into `tree` in place, table by table, and record the source of each key."""
    for key, value in new.items():
        path = f"{prefix}{key}"
        sources[path] = source
        if isinstance(value, Mapping):
            if not isinstance(tree.get(key), dict):
                tree[key] = {}
            _merge(tree[key], value, source, f"{path}.", sources)
        else:
            tree[key] = copy.deepcopy(value)  # an override changes the tree, never a table that was given


def _validate(tree: dict[str, Any], sources: Mapping[str, str], default_source: str) -> RunConfig:
    """Check keys and types. Raises ConfigError naming the source of the first wrong key, or `default_source`."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        problem, place, may_be_list = _join_alternatives(error.errors())
        key = ".".join(str(part) for part in place)
        source = _find_source(key, sources) or default_source
        if problem["type"] == "extra_forbidden":
            raise ConfigError(f"{source}: unknown key {_suggest(key, problem['input'])}") from None
        raise ConfigError(
            f"{source}: {key} is {problem['input']!r}; "
            + _describe_expected(problem["type"], problem["msg"], problem["input"])
            + (', or a list, such as ["a", "b"]' if may_be_list else "")
        ) from None


def _join_alternatives(problems: Sequence[Any]) -> tuple[Any, tuple[int | str, ...], bool]:
    """The problem to tell, its place without the alternatives of a type that pydantic writes behind the option
    (`literal['a']`, `list[str]`), and whether the option may also be a list."""
    problem = (
        max(problems, key=lambda each: len(each["loc"])) if isinstance(problems[0]["input"], list) else problems[0]
    )
    place = tuple(part for part in problem["loc"] if not (isinstance(part, str) and _ALTERNATIVE.fullmatch(part)))
    has_list = any(each["type"] == "list_type" for each in problems) and problem["type"] != "list_type"
    return problem, place, has_list and len(place) < len(problem["loc"])


def _prefixes(key: str) -> list[str]:
    """`["a.b.c", "a.b", "a"]` of `a.b.c`."""
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _find_source(key: str, sources: Mapping[str, str]) -> str | None:
    """Return what set a key, its table, or the first value in it; None if it was not set."""
    around = (sources[prefix] for prefix in _prefixes(key) if prefix in sources)
    inside = (source for path, source in sources.items() if path.startswith(f"{key}."))
    return next(around, None) or next(inside, None)


def _describe_expected(kind: str, message: str, value: Any) -> str:
    """Say what a value must be, from pydantic's error type and message and the value."""
    if kind in ("bool_type", "bool_parsing"):
        return "it must be true or false"
    if kind == "list_type":
        return 'it must be a list, such as ["a", "b"]'
    if kind == "string_type" and not isinstance(value, list | dict | None):
        return f'it must be text: "{str(value).lower() if isinstance(value, bool) else value}" with its quotes'
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"it must be an integer; write {int(value)}"
    if value in ("null", "None", "none"):
        return f"{message.replace('Input should be', 'it must be', 1)}; leave the option out to use none"
    if kind in ("model_type", "dict_type"):
        is_other = isinstance(value, str) and value.lstrip().startswith("{")  # JSON, YAML, or Hydra's own form
        return "it must be a table" + ('; write it as in TOML, {name = "text", count = 3}' if is_other else "")
    if kind == "invalid-json-value":
        return "it must be a number, a string, a boolean, a list or a table"
    return message.replace("Input should be", "it must be", 1).removeprefix("Value error, ")


def _suggest(key: str, value: Any) -> str:
    """The unknown key, or the first one in its table that another library has, and what stands for it here.

    Else the option most like it: of the same last name, else of the same section, else a section.
    """
    for name in list_leaves(value, key):
        other = find_other_name(name)
        if other is not None:
            return f"{name!r}; {other.describe()}"
    options = list_options(RunConfig)
    if (dotted := key.replace("/", ".")) != key and dotted in options:
        return f"{key!r}; did you mean {dotted!r}? `turnwise options` lists all of them"
    section, last = key.split(".")[0], key.split(".")[-1]
    namesakes = [option for option in options if option.split(".")[-1] == last]
    siblings = [option for option in options if option.startswith(f"{section}.")]
    candidates = namesakes or siblings or list(RunConfig.model_fields)
    nearest = difflib.get_close_matches(key, candidates, n=1, cutoff=0.0)[0]
    return f"{key!r}; did you mean {nearest!r}? `turnwise options` lists all of them"
