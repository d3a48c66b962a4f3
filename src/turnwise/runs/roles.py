"""From the recipe's `[roles]` to what speaks for each role that does not learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from turnwise.algorithms.opponents import Choice
from turnwise.config.catalog import find_model
from turnwise.config.engine_kinds.table import find_engine_kind
from turnwise.config.roles import Binding, find_binding, find_learner, list_learners, split_address
from turnwise.config.run import RunConfig
from turnwise.core.checked import to_asking
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine, EnvironmentFamily, Renderer
from turnwise.environments.mixture import list_families
from turnwise.rollout.past import PastPolicy, SnapshotPool
from turnwise.rollout.policies import EnginePolicy, RolePolicy, ScriptedRole
from turnwise.rollout.served import REPLY_S, RETRIES_S, ServedRole
from turnwise.runs.openings import take_first
from turnwise.tools.chat_api import ChatApi


def read_bindings(config: RunConfig, family: EnvironmentFamily) -> dict[str, Binding]:
    """What speaks for every role of the family that `[roles]` names.

    Raises ConfigError for a role that the environment does not have, a text that is no binding, a checkpoint that is
    missing, and where no role is left to learn.
    """
    known = list_roles(family) if config.roles else []
    bindings = {role: find_binding(config.roles, role) for role in config.roles}
    for role, binding in bindings.items():
        if role not in known:
            raise ConfigError(
                f"roles.{role} is not a role of environment.name={config.environment.name!r}; it has {', '.join(known)}"
            )
        if binding.kind == "frozen" and not find_model(binding.value).is_dir():
            raise ConfigError(
                f"roles.{role}={config.roles[role]!r}: there is no directory {binding.value!r}; use the path of a "
                "checkpoint"
            )
    if any(binding.kind == "past" for binding in bindings.values()):
        _check_past(config)
    if known and config.train.steps and not any(find_binding(config.roles, role).learns for role in known):
        raise ConfigError(f"[roles] lets none of {', '.join(known)} learn; bind one to 'learns', or set train.steps=0")
    learners = ["", *list_learners(config.roles)]
    for role, binding in bindings.items():
        if binding.learner not in learners:
            raise ConfigError(
                f"roles.{role}={config.roles[role]!r}: no role learns under that name; bind one to "
                f"'learns:{binding.learner}', or use 'follows'"
            )
    if len(learners) > 1:
        _check_several(config, learners[1:], known)
    return bindings


def _check_several(config: RunConfig, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ConfigError for what does not go with several learners."""
    lead = f"[roles] has other learners in addition to the first: {', '.join(names)}"
    if all(find_learner(config.roles, role) != "" for role in known):
        raise ConfigError(f"{lead}, but no role is bound to it; bind one of {', '.join(known)} to 'learns'")
    if config.schedule.max_staleness:
        raise ConfigError(
            f"{lead}, and schedule.max_staleness={config.schedule.max_staleness} would publish their weights at "
            "different times; set it to 0"
        )
    kind = find_engine_kind(config.engine.kind)
    if kind.one_learner:
        raise ConfigError(f"{lead}, but engine.kind={kind.name!r} {kind.one_learner}; use 'paged' or 'local'")
    if config.critic.kind != "none":
        raise ConfigError(
            f"{lead}, but critic.kind={config.critic.kind!r} can value the states of only one policy; use "
            "critic.kind='none'"
        )


def _check_past(config: RunConfig) -> None:
    """Raise ConfigError where the past of a run has nothing to choose from, or would depend on timing."""
    if config.schedule.max_staleness:
        raise ConfigError(
            f"a role bound to 'past:' with schedule.max_staleness={config.schedule.max_staleness}: the checkpoints and "
            "results available when a group starts would depend on timing; set schedule.max_staleness=0"
        )
    if config.train.steps and not config.train.checkpoint_every:
        raise ConfigError(
            "a role bound to 'past:' with train.checkpoint_every=0 can only play the starting weights; set it above 0, "
            "or bind the role to 'frozen:PATH'"
        )


def keeps_past(config: RunConfig) -> bool:
    """Whether every checkpoint may be asked for until the run ends."""
    bindings = (find_binding(config.roles, role) for role in config.roles)
    return any(binding.kind == "past" and binding.value != "latest" for binding in bindings)


def bind_roles(
    config: RunConfig,
    bindings: Mapping[str, Binding],
    family: EnvironmentFamily,
    renderer: Renderer,
    *,
    engines: Mapping[str, Engine],
    load_engine: Callable[[Path], Engine],
    past: SnapshotPool,
) -> dict[str, RolePolicy]:
    """The policies of the roles that the first learner does not play, by role.

    `engines` are those of the learners, by name; `load_engine` opens a checkpoint; `past` holds
    snapshots of the run. Raises ConfigError for a checkpoint
    that does not fit and a policy that the family does not have.
    """
    policies: dict[str, RolePolicy] = {}
    frozen: dict[str, Engine] = {}
    for role, binding in bindings.items():
        value = binding.value
        match binding.kind:
            case "learns" if value:
                policies[role] = EnginePolicy(engine=engines[value], renderer=renderer)
            case "follows":
                policies[role] = EnginePolicy(engine=engines[value], renderer=renderer, learns=False)
            case "past":
                policies[role] = PastPolicy(
                    pool=past,
                    renderer=renderer,
                    choice=cast(Choice, value),
                    every=config.train.checkpoint_every,
                    seed=config.run.seed,
                    role=role,
                )
                past.roles = (*past.roles, role)
            case "frozen":
                if value not in frozen:
                    frozen[value] = load_engine(find_model(value))
                policies[role] = EnginePolicy(engine=frozen[value], renderer=renderer, learns=False)
            case "api":
                url, model = split_address(value)
                api = ChatApi(
                    url,
                    model,
                    max_tokens=config.rollout.max_turn_tokens,
                    seed=config.run.seed,
                    source=f"roles.{role}",
                    max_concurrent=config.engine.max_concurrency,
                    timeout_s=REPLY_S,
                    retries_s=RETRIES_S,
                )
                policies[role] = ServedRole(api=api, renderer=renderer)
            case "scripted":
                policies[role] = ScriptedRole(policy=family.policy(value), renderer=renderer)
    return policies


def list_roles(family: EnvironmentFamily) -> list[str]:
    """The roles of a family, or of all families of a mixture, by their first training task."""
    specs = [to_asking(member.build_environment(take_first(member))).spec for member in list_families(family)]
    return list(dict.fromkeys(role.name for spec in specs for role in spec.roles))


async def check_servers(policies: Mapping[str, RolePolicy]) -> list[str]:
    """Check that every server that speaks for a role answers; the roles. Raises ConfigError with the remedy."""
    served = {role: policy for role, policy in policies.items() if isinstance(policy, ServedRole)}
    for policy in served.values():
        await policy.api.check()
    return list(served)
