"""`[roles]`: what speaks for a role, and what is refused at the start."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking_worlds import RENDERER, WandererFamily
from pipeline_world import make_config

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Engine, EnvironmentFamily
from turnwise.engines.scripted import ScriptedEngine
from turnwise.rollout.past import SnapshotPool
from turnwise.rollout.policies import EnginePolicy, RolePolicy, ScriptedRole
from turnwise.runs.roles import bind_roles, keeps_past, list_roles, read_bindings

ENGINE = ScriptedEngine(RENDERER, ["alpha"])
"""Of the weights that learn."""


def bind(
    roles: dict[str, str],
    *,
    steps: int = 4,
    load_engine: Callable[[Path], Engine] = lambda path: ScriptedEngine(RENDERER, ["alpha"]),
) -> dict[str, RolePolicy]:
    config = make_config(train={"steps": steps}).model_copy(update={"roles": roles})
    family: EnvironmentFamily = WandererFamily(num_roles=3)
    bindings = read_bindings(config, family)
    past = SnapshotPool(load_engine)
    return bind_roles(config, bindings, family, RENDERER, engines={"": ENGINE}, load_engine=load_engine, past=past)


def test_roles_that_are_not_named_learn() -> None:
    assert bind({}) == bind({"first": "learns", "second": "learns"}) == {}
    assert list_roles(WandererFamily(num_roles=3)) == ["first", "second", "third"]


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
    ("sections", "problem"),
    [
        ({"schedule": {"max_staleness": 1}}, "would publish their weights at different times; set it to 0"),
        ({"engine": {"kind": "workers"}}, "would start its processes once for each; use 'paged' or 'local'"),
        ({"critic": {"kind": "separate"}}, "can value the states of only one policy; use critic.kind='none'"),
    ],
)
def test_what_does_not_bear_two_learners_is_refused(sections: dict[str, dict[str, Any]], problem: str) -> None:
    config = make_config(**sections).model_copy(update={"roles": {"first": "learns:b"}})
    with pytest.raises(ConfigError) as raised:
        read_bindings(config, WandererFamily())
    assert "[roles] has other learners in addition to the first: b" in str(raised.value)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"schedule": {"max_staleness": 1}}, "would depend on timing; set schedule.max_staleness=0"),
        ({"train": {"checkpoint_every": 0}}, "train.checkpoint_every=0 can only play the starting weights"),
    ],
)
def test_a_past_that_holds_nothing_or_depends_on_timing_is_refused(
    sections: dict[str, dict[str, Any]], problem: str
) -> None:
    config = make_config(**sections).model_copy(update={"roles": {"first": "past:uniform"}})
    with pytest.raises(ConfigError) as raised:
        read_bindings(config, WandererFamily())
    assert problem in str(raised.value)


def test_every_checkpoint_is_kept_where_any_may_be_drawn() -> None:
    for binding, keeps in {"past:latest": False, "past:uniform": True, "past:wins": True, "follows": False}.items():
        assert keeps_past(make_config().model_copy(update={"roles": {"first": binding}})) is keeps


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        (
            {"fourth": "learns"},
            "roles.fourth is not a role of environment.name='search_qa'; it has first, second, third",
        ),
        ({"first": "frozen:/nowhere"}, "roles.first='frozen:/nowhere': there is no directory '/nowhere'"),
        (
            {"first": "frozen"},
            "roles.first='frozen' is not a policy; use 'learns' or 'learns:NAME'",
        ),
        ({"first": "frozen:"}, "roles.first='frozen:' is not a policy"),
        ({"first": "past"}, "roles.first='past' is not a policy"),
        ({"first": "past:best"}, "roles.first='past:best' is not a policy"),
        ({"first": "follows:b"}, "roles.first='follows:b': no role learns under that name; bind one to 'learns:b'"),
        ({"first": "learns:"}, "roles.first='learns:' is not a policy"),
        ({"first": "learns:../up"}, "roles.first='learns:../up' is not a policy"),
        (dict.fromkeys(["first", "second", "third"], "learns:b"), ": b, but no role is bound to it"),
        ({"first": ""}, "roles.first='' is not a policy"),
        ({"first": "api:gpt"}, "roles.first='api:gpt' is not a policy"),
        ({"first": "api:http://127.0.0.1:1/v1"}, "or 'api:URL#MODEL' for a chat server"),
        ({"first": "api:#gpt"}, "roles.first='api:#gpt' is not a policy"),
        ({"first": "api:gopher://host#gpt"}, "roles.first gopher://host must be http(s)://host/path"),
        ({"first": "api:http://me:secret@host#gpt"}, "the key is read from OPENAI_API_KEY"),
        (
            dict.fromkeys(["first", "second", "third"], "scripted:talker"),
            "lets none of first, second, third learn",
        ),
        (dict.fromkeys(["first", "second", "third"], "follows"), "lets none of first, second, third learn"),
    ],
)
def test_a_role_without_a_policy_is_refused(roles: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        bind(roles)
    assert problem in str(raised.value)


def test_without_training_nobody_has_to_learn() -> None:
    assert len(bind(dict.fromkeys(["first", "second", "third"], "scripted:talker"), steps=0)) == 3
