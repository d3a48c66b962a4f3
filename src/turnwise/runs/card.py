"""The card of a recipe: its facts, its environment, its measurement, and whether a stored card is up to date."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.building.families import build_family
from turnwise.cards.card import SUFFIX, Card, read_page
from turnwise.cards.facts import Facts
from turnwise.cards.measure import measure, probe, summarise_rewards
from turnwise.cards.measured import Continuity
from turnwise.config.load import load_config, load_resolved
from turnwise.config.run import RunConfig
from turnwise.config.shipped import Shipped, find_shipped
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.judging import JudgedFamily
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.roles import split_roles
from turnwise.core.types import Scored
from turnwise.runs.judges import build_judges, refuse_model, refuse_policy
from turnwise.store.groups import GroupStore
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import RunFolder


def load_subject(recipes: Sequence[Path], overrides: Sequence[str] = ()) -> tuple[RunConfig, Facts]:
    """Load recipes that are laid over each other, or the resolved one of a run folder's `config.json`, and what their
    card depends on. A single one is laid over those of its `card.over`. Raises ConfigError as `load_config` does."""
    *_, last = recipes
    name = name_recipe(last)
    if len(recipes) == 1 and last.suffix == ".json":
        config = load_resolved(last, overrides)
        return config, read_facts(config, name)
    below = read_below(last) if len(recipes) == 1 else []
    config = load_config([*below, *recipes], overrides)
    return config, read_facts(config, name)


def read_below(recipe: Path) -> list[Path]:
    """Return the recipes of a recipe's `card.over`. Raises ConfigError for a wrong section `[card]`."""
    card = _read_tables(recipe).get("card", {})
    return list(map(Path, load_config([{"card": card}]).card.over))


def _read_tables(recipe: Path) -> dict[str, Any]:
    """The tables of a file or an installed recipe; none if it cannot be read, which `load_config` tells better."""
    path = recipe if recipe.is_file() else find_shipped(recipe.as_posix()).path
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return {}


def name_recipe(recipe: Path) -> str:
    """The short name of an installed recipe, or the path as it was given."""
    try:
        return find_shipped(recipe.as_posix()).name
    except ConfigError:
        return recipe.as_posix()


def read_facts(config: RunConfig, recipe: str) -> Facts:
    """Return what the card of a recipe depends on."""
    environment = config.environment
    names: dict[str, Any] = (
        {label: [each.name or label, each.args, each.weight] for label, each in environment.mixture.items()}
        if environment.mixture
        else {environment.name: environment.args}
    )
    demonstrates = config.sft.steps > 0 and not config.sft.path
    return Facts(
        recipe=recipe,
        ability=config.card.ability,
        number=config.card.number,
        environment=_shorten(names),
        heldout_tasks=config.evaluate.tasks,
        samples=config.evaluate.samples,
        group_size=config.rollout.group_size,
        max_turns=config.rollout.max_turns,
        warm_up_tasks=config.sft.num_demonstrations if demonstrates else 0,
        rl_tasks=config.train.steps * config.rollout.tasks_per_step,
        demonstrator=config.sft.policy if demonstrates else "",
        judges=tuple(f"{name} ({section.kind})" for name, section in config.judges.items()),
        roles=dict(config.roles),
        terms=tuple(section.kind for section in config.rewards.values()),
        files=_digest_files(names),
    )


def _shorten(value: Any) -> Any:
    """Paths of an installed package's data, wherever it is installed, by the recipes folder's name."""
    if isinstance(value, dict):
        return {key: _shorten(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    if isinstance(value, str) and "/recipes/" in value and Path(value).is_file():
        return "recipes/" + value.rpartition("/recipes/")[2]
    return value


def _digest_files(value: Any) -> dict[str, str]:
    """Digests of the files that arguments name, by their short name."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return {name: digest for each in inner for name, digest in _digest_files(each).items()}
    if not isinstance(value, str) or "\0" in value or len(value) > 500 or not Path(value).is_file():
        return {}
    return {_shorten(value): hashlib.sha256(Path(value).read_bytes()).hexdigest()[:16]}


def make_card(
    config: RunConfig, facts: Facts, *, num_played: int | None = None, continuity: Continuity | None = None
) -> Card:
    """Measure a recipe's card. What cannot be measured is said in it; nothing that an environment raises is raised."""
    measured, timing, played = measure(
        lambda: build_judged_family(config), facts, num_played=num_played, continuity=continuity
    )
    return Card(facts=facts, measured=measured, timing=timing, num_played=played)


def build_judged_family(config: RunConfig) -> EnvironmentFamily:
    """The recipe's family with its judges, without a model. Raises ConfigError if a judge needs one."""
    family = build_family(config)
    if not config.judges:
        return family
    return JudgedFamily(family, build_judges(config, refuse_model, refuse_policy))


def check_card(config: RunConfig, facts: Facts, page: Path) -> str:
    """Return why a stored card is out of date; empty if it is not.

    Compared are the digest of what the card depends on, and the rewards of the first tasks, played again. Raises
    DataError if there is no card, or the file is none.
    """
    name = facts.recipe
    try:
        stored = read_page(page.read_text(encoding="utf-8"))
    except OSError as cause:
        raise DataError(f"{page} cannot be read ({cause.strerror}); write it with `turnwise card {name}`") from cause
    if stored is None:
        raise DataError(f"{page} is no card; write it with `turnwise card {name}`")
    remedy = f"write it again with `turnwise card {name} --write`"
    if stored.digest != facts.compute_digest():
        return f"the card of {name} is out of date: the recipe's tasks, evaluation or card have changed; {remedy}"
    if stored.probe and stored.probe != probe(lambda: build_judged_family(config), facts):
        return f"the card of {name} is out of date: its first tasks are other ones or are scored otherwise; {remedy}"
    return ""


def find_page(recipe: Path) -> Path:
    """The file of a recipe's card, beside the recipe."""
    path = recipe if recipe.is_file() else find_shipped(recipe.as_posix()).path
    return path.with_name(path.stem + SUFFIX)


def names_no_environment(recipe: Path) -> bool:
    """Whether a recipe is a part that is laid over any other: it names no environment, and none below it."""
    return "environment" not in _read_tables(recipe) and not read_below(recipe)


def write_part_page(shipped: Shipped) -> str:
    """The card of such a part."""
    sections = ", ".join(f"`[{name}]`" for name in _read_tables(shipped.path))
    return (
        f"cannot say: {shipped.name} is laid over another recipe, whose card says what its number stands for\n\n"
        f"# Card of {shipped.name}\n\nThis part sets {sections} and names no environment.\n"
    )


def read_continuity(run: Path) -> Continuity:
    """Distinct rewards and groups with signal of the groups that a run has trained on or dropped. Raises DataError if
    it has none, StoreError if it is no run folder."""
    folder = RunFolder.open(run)
    store = GroupStore(folder.path)
    draws = dict.fromkeys(each.draw for each in load_accounts(folder.path))
    groups = [
        [each.reward.total for each in part.trajectories if isinstance(each.reward, Scored)]
        for draw in draws
        for part in split_roles(store.load(draw))
    ]
    found = summarise_rewards(groups, f"{len(draws):,} groups of {folder.path.name}")
    if found is None:
        raise DataError(f"{run} has no group with two scored attempts; name a run that has taken a step of RL")
    return found
