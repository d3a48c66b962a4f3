"""Checks a family's inputs: its section of arguments, a split and an index, the name of a policy.

Every refusal names the argument, its value and the remedy.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import ScriptedPolicy, Split

Seconds = Annotated[float, Field(ge=1e-3, le=86_400)]
Share = Annotated[float, Field(ge=0, le=1)]
"""A probability."""


class FamilyArguments(Section):
    """Keyword arguments that every built-in family takes; each family's section adds its own."""

    seed: int = Field(0, ge=0, le=2**62)
    """Seed of all randomness in the family's tasks."""
    tool_timeout_s: Seconds = 10.0
    """Most seconds that one tool call may take."""
    max_observation_chars: int = Field(4000, ge=1, le=2**40)
    """Longest tool output, in characters, that the model sees."""


Arguments = TypeVar("Arguments", bound=FamilyArguments)


def check_unread(arguments: FamilyArguments, names: Iterable[str], mode: str) -> None:
    """Raise ConfigError for the first of these arguments that is given and not the default: this mode reads none."""
    for name in sorted(set(names) & arguments.model_fields_set):
        field = type(arguments).model_fields[name]
        if getattr(arguments, name) != field.get_default(call_default_factory=True):
            raise ConfigError(
                f"{field.alias or name}={getattr(arguments, name)!r} has no effect in mode={mode!r}; leave it out or "
                "change the mode"
            )


def read_arguments(section: type[Arguments], arguments: Mapping[str, Any]) -> Arguments:
    """Return the checked section.

    Raises ConfigError naming an unknown argument with the nearest known one, or a wrong value with what is expected.
    """
    try:
        return section.model_validate(dict(arguments))
    except ValidationError as error:
        problem = error.errors()[0]
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):
            raise cause from None
        stated = f"{'.'.join(map(str, problem['loc']))}={problem['input']!r}"
        if problem["type"] == "extra_forbidden":
            *outer, name = problem["loc"]
            if inner := _names_at(section, outer):
                raise ConfigError(f"{stated}: unknown name {name!r}; use {', '.join(inner)}") from None
            names = [field.alias or name for name, field in section.model_fields.items()]
            nearest = difflib.get_close_matches(str(problem["loc"][0]), names, n=1, cutoff=0.0)[0]
            raise ConfigError(f"{stated}: unknown argument; did you mean {nearest!r}?") from None
        message = problem["msg"].replace("Input should be", "it must be", 1)
        raise ConfigError(f"{stated}: {message}") from None


def _names_at(section: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the names of the fields of a section within a section; none if there is no other section."""
    kind: Any = section
    for step in place:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(step)].annotation
        else:
            kind = next(iter(get_args(kind)[-1:]), None)
    is_section = place and isinstance(kind, type) and issubclass(kind, BaseModel)
    return list(kind.model_fields) if is_section else []


def check_weights(name: str, weights: Any, known: Sequence[str]) -> dict[str, float]:
    """Return a table of weights without zeros; for None, all of `known` with equal weights. Raises ConfigError."""
    if weights is None:
        return dict.fromkeys(known, 1.0)
    if not isinstance(weights, Mapping):
        raise ConfigError(f"{name}={weights!r} is not a table; set weights such as {{{known[0]!r}: 1.0}}")
    for key, weight in weights.items():
        if key not in known:
            raise ConfigError(f"{name}.{key}={weight!r}: unknown kind; use {', '.join(known)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"{name}.{key}={weight!r} is not a weight; use a number of at least 0")
    positive = {key: float(weight) for key, weight in weights.items() if weight > 0}
    if not positive:
        raise ConfigError(f"{name}={dict(weights)!r} has no positive weight; set at least one weight above 0")
    return positive


def check_index(split: Split, index: int) -> None:
    """Raise ConfigError for an unknown split, IndexError for a negative index."""
    if split not in get_args(Split):
        raise ConfigError(f"split {split!r} is unknown; use one of {', '.join(map(repr, get_args(Split)))}")
    if index < 0:
        raise IndexError(f"task {index} of split {split!r}: the index must be at least 0")


def choose_policy(name: str, policies: Mapping[str, ScriptedPolicy]) -> ScriptedPolicy:
    """Return the policy with this name. Raises ConfigError listing the known ones."""
    if name not in policies:
        raise ConfigError(f"policy {name!r} is unknown; use one of {', '.join(policies)}")
    return policies[name]
