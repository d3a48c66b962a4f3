"""From the recipe's `[roles]` to what speaks for each role that the trained policy does not play."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnwise.config.run import RunConfig
from turnwise.core.episodes import to_asking
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine, EnvironmentFamily, Renderer
from turnwise.environments.mixture import list_families
from turnwise.rollout.policies import EnginePolicy, RolePolicy, ScriptedRole
from turnwise.runs.openings import take_first

LEARNS, FROZEN, SCRIPTED = "learns", "frozen", "scripted"


def bind_roles(
    config: RunConfig, family: EnvironmentFamily, renderer: Renderer, *, load_engine: Callable[[Path], Engine]
) -> dict[str, RolePolicy]:
    """The policies of the roles that do not learn, by role; `load_engine` opens a checkpoint.

    Raises ConfigError for a role that the environment does not have, a binding that is none, a checkpoint that is
    missing or does not fit, a policy that the family does not have, and where no role is left to learn.
    """
    policies: dict[str, RolePolicy] = {}
    engines: dict[str, Engine] = {}
    known = list_roles(family) if config.roles else []
    for role, binding in config.roles.items():
        kind, _, value = binding.partition(":")
        if role not in known:
            raise ConfigError(
                f"roles.{role} names no role of environment.name={config.environment.name!r}; it has {', '.join(known)}"
            )
        if kind == FROZEN and value:
            if not Path(value).is_dir():
                raise ConfigError(f"roles.{role}={binding!r}: there is no directory {value!r}; name a checkpoint's")
            if value not in engines:
                engines[value] = load_engine(Path(value))
            policies[role] = EnginePolicy(engine=engines[value], renderer=renderer, learns=False)
        elif kind == SCRIPTED and value:
            policies[role] = ScriptedRole(policy=family.policy(value), renderer=renderer)
        elif binding != LEARNS:
            raise ConfigError(
                f"roles.{role}={binding!r} is no policy; use 'learns', 'frozen:PATH' of a checkpoint, or "
                "'scripted:NAME' of a policy of the environment"
            )
    if known and config.train.steps and not set(known) - policies.keys():
        raise ConfigError(f"[roles] leaves none of {', '.join(known)} to learn; bind one to 'learns', or train.steps=0")
    return policies


def list_roles(family: EnvironmentFamily) -> list[str]:
    """The roles of a family, or of all families of a mixture, by their first training task."""
    specs = [to_asking(member.build_environment(take_first(member))).spec for member in list_families(family)]
    return list(dict.fromkeys(role.name for spec in specs for role in spec.roles))
