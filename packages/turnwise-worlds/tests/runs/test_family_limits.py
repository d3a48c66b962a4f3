"""The limits of tools that a recipe gives, and those that it leaves to the family."""

from __future__ import annotations

from turnwise.building.families import build_family
from turnwise.config.run import RunConfig
from turnwise_worlds.coding.environment import CodingEnvironment


def timeout_of(environment: dict[str, object]) -> float:
    family = build_family(RunConfig.model_validate({"environment": environment}))
    opened = family.build_environment(family.task("train", 0))
    assert isinstance(opened, CodingEnvironment)
    return opened._tool_timeout_s


def test_a_limit_that_the_recipe_leaves_out_is_the_familys_own() -> None:
    assert timeout_of({"name": "coding"}) == 60.0
    assert timeout_of({"name": "coding", "tool_timeout_s": 20.0}) == 20.0
    assert timeout_of({"name": "coding", "tool_timeout_s": 20.0, "args": {"tool_timeout_s": 30.0}}) == 30.0
    assert timeout_of({"mixture": {"coding": {}}}) == 60.0
