"""What a recipe's `[roles]`, a table of texts by role, say about a role: a kind of policy and what it is given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from turnwise.core.episodes import ASIDE
from turnwise.core.errors import ConfigError

Kind = Literal["learns", "follows", "past", "frozen", "scripted", "api"]

FORMS = (
    "'learns' or 'learns:NAME' with separate weights, 'follows' or 'follows:NAME' for a learner's weights, "
    "'past:latest', 'past:uniform' or 'past:wins' for this run's checkpoints, 'frozen:PATH' for a checkpoint, "
    "'scripted:NAME' for a policy of the environment, or 'api:URL#MODEL' for a chat server"
)
LEARNERS = ("learns", "follows")
"""Kinds that need no value: it names a learner, and the first has no name."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Of a learner: it names a folder too."""
CHOICES = ("latest", "uniform", "wins")
"""How a checkpoint of the run is chosen (`algorithms.opponents`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What speaks for a role."""

    role: str
    kind: Kind
    value: str = ""
    """A path, a name, a way to choose, an address; the name of a learner, empty for the first."""

    @property
    def learns(self) -> bool:
        """Whether the role's tokens train."""
        return self.kind == "learns"

    @property
    def learner(self) -> str:
        """The learner whose weights speak; empty for the first, and where none does."""
        return self.value if self.kind in LEARNERS else ""

    @property
    def is_own(self) -> bool:
        """Whether weights of this run speak for the role, as they are or as they were."""
        return self.kind in ("learns", "follows", "past")


def find_binding(roles: Mapping[str, str], role: str) -> Binding:
    """The binding of a role; one that is not named learns, but `ASIDE` follows. Raises ConfigError for a text that is
    no binding."""
    text = roles.get(role, "follows" if role == ASIDE else "learns")
    kind, _, value = text.partition(":")
    known: dict[str, Kind] = {name: name for name in get_args(Kind)}
    if kind not in known or text.endswith(":") or not _takes(known[kind], value):
        raise ConfigError(f"roles.{role}={text!r} is not a policy; use {FORMS}")
    return Binding(role=role, kind=known[kind], value=value)


def _takes(kind: Kind, value: str) -> bool:
    """Whether a kind of policy can be given this value."""
    match kind:
        case "learns" | "follows":
            return not value or NAME.fullmatch(value) is not None
        case "past":
            return value in CHOICES
        case "api":
            return all(split_address(value))
        case "frozen" | "scripted":
            return bool(value)


def find_learner(roles: Mapping[str, str], role: str) -> str | None:
    """The name of the learner that a role trains, empty for the first; None for a role that does not learn."""
    binding = find_binding(roles, role)
    return binding.value if binding.learns else None


def list_learners(roles: Mapping[str, str]) -> list[str]:
    """Names of the learners besides the first, in the order of the recipe."""
    names = (find_learner(roles, role) for role in roles)
    return list(dict.fromkeys(name for name in names if name))


def split_address(value: str) -> tuple[str, str]:
    """URL and model of an `api:` binding, either empty where it is missing."""
    url, _, model = value.partition("#")
    return url, model
