"""What a recipe's `[roles]` says about a role: a kind of policy and what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError

Kind = Literal["learns", "follows", "past", "frozen", "scripted", "api"]

FORMS = (
    "'learns', 'follows', 'past:latest', 'past:uniform' or 'past:wins' of this run's checkpoints, 'frozen:PATH' of a "
    "checkpoint, 'scripted:NAME' of a policy of the environment, or 'api:URL#MODEL' of a chat server"
)
VALUELESS = ("learns", "follows")
"""Kinds that take no value."""
CHOICES = ("latest", "uniform", "wins")
"""How a checkpoint of the run is chosen (`algorithms.opponents`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What speaks for a role."""

    role: str
    kind: Kind
    value: str = ""
    """A path, a name, a way to choose, an address; empty where the kind takes none."""

    @property
    def learns(self) -> bool:
        """Whether the role's tokens train."""
        return self.kind == "learns"

    @property
    def is_own(self) -> bool:
        """Whether weights of this run speak for the role, as they are or as they were."""
        return self.kind in ("learns", "follows", "past")


def find_binding(config: RunConfig, role: str) -> Binding:
    """The binding of a role; one that is not named learns. Raises ConfigError for a text that is no binding."""
    text = config.roles.get(role, "learns")
    kind, _, value = text.partition(":")
    known: dict[str, Kind] = {name: name for name in get_args(Kind)}
    is_whole = bool(value) != (kind in VALUELESS) and not text.endswith(":")
    is_whole = is_whole and (kind != "past" or value in CHOICES) and (kind != "api" or all(split_address(value)))
    if kind not in known or not is_whole:
        raise ConfigError(f"roles.{role}={text!r} is no policy; use {FORMS}")
    return Binding(role=role, kind=known[kind], value=value)


def split_address(value: str) -> tuple[str, str]:
    """URL and model of an `api:` binding, either empty where it is missing."""
    url, _, model = value.partition("#")
    return url, model
