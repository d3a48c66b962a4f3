"""From a name on the command line to what is attacked: a family with its default arguments, or a recipe's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.building.families import build_family
from turnwise.config.credit import ShapingSection
from turnwise.config.load import load_config
from turnwise.config.rewards import RewardSection
from turnwise.config.shipped import is_recipe
from turnwise.core.errors import ConfigError
from turnwise.core.judging import Judge
from turnwise.core.protocols import EnvironmentFamily
from turnwise.credit.reward_kind import RewardParts
from turnwise.credit.reward_table import build_reward, find_reward
from turnwise.credit.terms import TermAnnotator
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
    rewards: tuple[str, ...] = ()
    """The kinds of the recipe's `[rewards]`."""


def find_target(
    name: str, arguments: Mapping[str, Any], *, over: Sequence[str] = (), max_turns: int | None = None
) -> Target:
    """Build the target; `arguments` are laid over those of a recipe, and so are further recipes `over` it. `max_turns`
    None: 16, or the recipe's.

    Raises ConfigError for an unknown name, a wrong argument, and a judge or a reward that needs the run's model.
    """
    if not is_recipe(name):
        family = load_family(name, arguments)
        return Target(
            arena=Arena(family=family, max_turns=max_turns or 16), environments=(name,), arguments=dict(arguments)
        )
    config = load_config([Path(name), *map(Path, over)], [])
    family, judges = build_family(config, arguments), build_judges(config, refuse_model, refuse_policy)
    rewards = [_build_term(name, section, family, judges) for name, section in config.rewards.items()]
    arena = Arena(
        family=family,
        judges=judges,
        rewards=rewards,
        shaping=config.credit.shaping,
        group_size=config.rollout.group_size if rewards or config.credit.shaping != ShapingSection() else 1,
        max_turns=max_turns or config.rollout.max_turns,
    )
    mixture = config.environment.mixture
    return Target(
        arena=arena,
        environments=tuple(member.name or label for label, member in mixture.items()) or (config.environment.name,),
        arguments={} if mixture else {**config.environment.args, **arguments},
        rewards=tuple(section.kind for section in config.rewards.values()),
    )


class _NoModel:
    """Stands where a reward may look for the policy or its tokens."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise ConfigError(
            f"rewards.{self._name} reads the policy's tokens, and nothing here has a model; check the recipe without it"
        )

    async def __call__(self, *given: Any) -> Any:
        return self.tokens


def _build_term(
    name: str, section: RewardSection, family: EnvironmentFamily, judges: Mapping[str, Judge]
) -> TermAnnotator:
    model: Any = _NoModel(name)
    parts = RewardParts(
        name=name, options=section.options, family=family, renderer=model, score=model, tokenizer=model, seed=0
    )
    reward = build_reward(section, find_reward(name, section), parts)
    return TermAnnotator(name=name, reward=reward, weight=section.weight, cap=section.cap, judges=judges)
