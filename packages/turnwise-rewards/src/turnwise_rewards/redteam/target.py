"""From a name on the command line to what is attacked: a family with its default arguments, or a recipe's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.config.shipped import is_recipe
from turnwise.environments.registry import load_family
from turnwise.runs.judges import build_judges, refuse_model, refuse_policy
from turnwise_rewards.redteam.play import Arena


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is attacked."""

    arena: Arena
    environments: tuple[str, ...]
    """Names of its environments; several of a mixture."""
    arguments: Mapping[str, Any]
    """The arguments that are given to it; of a mixture none."""


def find_target(name: str, arguments: Mapping[str, Any], *, max_turns: int | None = None) -> Target:
    """Build the target; `arguments` are laid over those of a recipe. `max_turns` None: 16, or the recipe's.

    Raises ConfigError for an unknown name, a wrong argument, and a judge that needs a model.
    """
    if not is_recipe(name):
        family = load_family(name, arguments)
        return Target(
            arena=Arena(family=family, max_turns=max_turns or 16), environments=(name,), arguments=dict(arguments)
        )
    config = load_config([Path(name)], [])
    arena = Arena(
        family=build_family(config, arguments),
        judges=build_judges(config, refuse_model, refuse_policy),
        max_turns=max_turns or config.rollout.max_turns,
    )
    mixture = config.environment.mixture
    return Target(
        arena=arena,
        environments=tuple(member.name or label for label, member in mixture.items()) or (config.environment.name,),
        arguments={} if mixture else {**config.environment.args, **arguments},
    )
