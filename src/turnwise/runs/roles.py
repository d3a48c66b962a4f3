"""From the recipe's `[roles]` to what speaks for each role that does not learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from turnwise.config.roles import Binding, find_binding
from turnwise.config.run import RunConfig
from turnwise.core.episodes import to_asking
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine, EnvironmentFamily, Renderer
from turnwise.environments.mixture import list_families
from turnwise.rollout.policies import EnginePolicy, RolePolicy, ScriptedRole
from turnwise.runs.openings import take_first


def read_bindings(config: RunConfig, family: EnvironmentFamily) -> dict[str, Binding]:
    """What speaks for every role of the family that `[roles]` names.

    Raises ConfigError for a role that the environment does not have, a text that is no binding, a checkpoint that is
    missing, and where no role is left to learn.
    """
    known = list_roles(family) if config.roles else []
    bindings = {role: find_binding(config, role) for role in config.roles}
    for role, binding in bindings.items():
        if role not in known:
            raise ConfigError(
                f"roles.{role} names no role of environment.name={config.environment.name!r}; it has {', '.join(known)}"
            )
        if binding.kind == "frozen" and not Path(binding.value).is_dir():
            raise ConfigError(
                f"roles.{role}={config.roles[role]!r}: there is no directory {binding.value!r}; name a checkpoint's"
            )
    if known and config.train.steps and not any(find_binding(config, role).learns for role in known):
        raise ConfigError(f"[roles] leaves none of {', '.join(known)} to learn; bind one to 'learns', or train.steps=0")
    return bindings


def bind_roles(
    bindings: Mapping[str, Binding],
    family: EnvironmentFamily,
    renderer: Renderer,
    *,
    engine: Engine,
    load_engine: Callable[[Path], Engine],
) -> dict[str, RolePolicy]:
    """The policies of the roles that do not learn, by role.

    `engine` is that of the weights that learn; `load_engine` opens a checkpoint. Raises ConfigError for a checkpoint
    that does not fit and a policy that the family does not have.
    """
    policies: dict[str, RolePolicy] = {}
    engines: dict[str, Engine] = {}
    for role, binding in bindings.items():
        value = binding.value
        match binding.kind:
            case "follows":
                policies[role] = EnginePolicy(engine=engine, renderer=renderer, learns=False)
            case "frozen":
                if value not in engines:
                    engines[value] = load_engine(Path(value))
                policies[role] = EnginePolicy(engine=engines[value], renderer=renderer, learns=False)
            case "scripted":
                policies[role] = ScriptedRole(policy=family.policy(value), renderer=renderer)
    return policies


def list_roles(family: EnvironmentFamily) -> list[str]:
    """The roles of a family, or of all families of a mixture, by their first training task."""
    specs = [to_asking(member.build_environment(take_first(member))).spec for member in list_families(family)]
    return list(dict.fromkeys(role.name for spec in specs for role in spec.roles))
