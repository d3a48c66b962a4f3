"""`[roles]`: what speaks for a role, and what is refused at the start."""

from collections.abc import Callable
from pathlib import Path

import pytest
from asking_worlds import RENDERER, WandererFamily
from pipeline_world import make_config

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine, EnvironmentFamily
from turnwise.engines.scripted import ScriptedEngine
from turnwise.rollout.policies import EnginePolicy, RolePolicy, ScriptedRole
from turnwise.runs.roles import bind_roles, list_roles, read_bindings

ENGINE = ScriptedEngine(RENDERER, ["alpha"])
"""Of the weights that learn."""


def bind(
    roles: dict[str, str],
    *,
    steps: int = 4,
    load_engine: Callable[[Path], Engine] = lambda path: ScriptedEngine(RENDERER, ["alpha"]),
) -> dict[str, RolePolicy]:
    config = make_config(train={"steps": steps}).model_copy(update={"roles": roles})
    family: EnvironmentFamily = WandererFamily(num_roles=3)  # type: ignore[assignment]
    bindings = read_bindings(config, family)
    return bind_roles(bindings, family, RENDERER, engine=ENGINE, load_engine=load_engine)


def test_roles_that_are_not_named_learn() -> None:
    assert bind({}) == bind({"first": "learns", "second": "learns"}) == {}
    assert list_roles(WandererFamily(num_roles=3)) == ["first", "second", "third"]  # type: ignore[arg-type]


def test_a_checkpoint_is_opened_once_for_all_roles_that_it_plays(tmp_path: Path) -> None:
    opened = []

    def load_engine(path: Path) -> Engine:
        opened.append(path)
        return ScriptedEngine(RENDERER, ["alpha"])

    policies = bind({"first": f"frozen:{tmp_path}", "second": f"frozen:{tmp_path}"}, load_engine=load_engine)
    assert opened == [tmp_path]
    assert all(isinstance(policy, EnginePolicy) and not policy.learns for policy in policies.values())
    [scripted] = bind({"third": "scripted:talker"}).values()
    assert isinstance(scripted, ScriptedRole)
    assert not scripted.learns


def test_a_role_that_follows_is_played_by_the_weights_that_learn_and_does_not_learn() -> None:
    [policy] = bind({"second": "follows"}).values()
    assert isinstance(policy, EnginePolicy)
    assert policy.engine is ENGINE
    assert not policy.learns


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        (
            {"fourth": "learns"},
            "roles.fourth names no role of environment.name='search_qa'; it has first, second, third",
        ),
        ({"first": "frozen:/nowhere"}, "roles.first='frozen:/nowhere': there is no directory '/nowhere'"),
        ({"first": "frozen"}, "roles.first='frozen' is no policy; use 'learns', 'follows', 'frozen:PATH'"),
        ({"first": "frozen:"}, "roles.first='frozen:' is no policy"),
        ({"first": "follows:second"}, "roles.first='follows:second' is no policy"),
        ({"first": ""}, "roles.first='' is no policy"),
        ({"first": "api:gpt"}, "roles.first='api:gpt' is no policy"),
        (
            dict.fromkeys(["first", "second", "third"], "scripted:talker"),
            "leaves none of first, second, third to learn",
        ),
        (dict.fromkeys(["first", "second", "third"], "follows"), "leaves none of first, second, third to learn"),
    ],
)
def test_a_role_without_a_policy_is_refused(roles: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        bind(roles)
    assert problem in str(raised.value)


def test_without_training_nobody_has_to_learn() -> None:
    assert len(bind(dict.fromkeys(["first", "second", "third"], "scripted:talker"), steps=0)) == 3
