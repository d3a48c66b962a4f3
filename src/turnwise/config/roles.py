"""What a recipe's `[roles]` says about a role: a kind of policy and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

Kind = Literal["learns", "follows", "frozen", "scripted"]

FORMS = "'learns', 'follows', 'frozen:PATH' of a checkpoint, or 'scripted:NAME' of a policy of the environment"
VALUELESS = ("learns", "follows")
"""Kinds that take no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What speaks for a role."""

    role: str
    kind: Kind
    value: str = ""
    """A path, a name; empty where the kind takes none."""

    @property
    def learns(self) -> bool:
        """Whether the role's tokens train."""
        return self.kind == "learns"

    @property
    def is_served(self) -> bool:
        """Whether the weights that learn speak for the role, at their present version."""
        return self.kind in VALUELESS


def find_binding(config: RunConfig, role: str) -> Binding:
    """The binding of a role; one that is not named learns. Raises ConfigError for a text that is no binding."""
    text = config.roles.get(role, "learns")
    kind, _, value = text.partition(":")
    known: dict[str, Kind] = {name: name for name in get_args(Kind)}
    if kind not in known or bool(value) == (kind in VALUELESS) or text.endswith(":"):
        raise ConfigError(f"roles.{role}={text!r} is no policy; use {FORMS}")
    return Binding(role=role, kind=known[kind], value=value)
