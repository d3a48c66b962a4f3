"""From the recipe's environment section to the family of a run: one, or a mixture of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.mixture import Member, mix_families
from turnwise.environments.registry import load_family


def build_family(config: RunConfig, changes: Mapping[str, Any] | None = None) -> EnvironmentFamily:
    """The environment family of the recipe, with `changes` laid over its arguments (an evaluation's control).

    Of a mixture, `changes` holds one table of arguments per label; families without one stay as they are. Raises
    ConfigError when a name cannot be imported, its arguments are refused, or `changes` names an unknown label."""
    environment, changes = config.environment, changes or {}
    given = {"tool_timeout_s": environment.tool_timeout_s, "max_observation_chars": environment.max_observation_chars}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if not environment.mixture:
        return load_family(environment.name, {**limits, **environment.args, **changes})
    members: dict[str, Member] = {}
    for label, change in changes.items():
        if label not in environment.mixture or not isinstance(change, Mapping):
            raise ConfigError(
                f"{label}={change!r} does not name a family in environment.mixture; set a table of arguments for one "
                f"of {', '.join(environment.mixture)}"
            )
    for label, member in environment.mixture.items():
        arguments = {**limits, **member.args, **changes.get(label, {})}
        family = load_family(member.name or label, arguments, key=f"environment.mixture.{label}")
        members[label] = Member(family=family, weight=member.weight)
    return mix_families(members)
