"""Arguments of families: one section each, unknown ones with the nearest known, what may stand in a recipe."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.arguments import FamilyArguments, read_arguments
from turnwise.environments.coding.arguments import CodingArguments
from turnwise.environments.countdown.arguments import CountdownArguments
from turnwise.environments.debate.arguments import DebateArguments
from turnwise.environments.delegate.arguments import DelegateArguments
from turnwise.environments.games.arguments import GamesArguments
from turnwise.environments.math_code.arguments import MathArguments
from turnwise.environments.mcp.arguments import McpArguments
from turnwise.environments.memory.chunks.arguments import ChunksArguments
from turnwise.environments.plan.arguments import PlanArguments
from turnwise.environments.proposer.arguments import ProgramProposerArguments, SearchProposerArguments
from turnwise.environments.registry import FAMILIES, load_family
from turnwise.environments.relay.arguments import RelayArguments
from turnwise.environments.repair.arguments import RepairArguments
from turnwise.environments.retry.arguments import RetryArguments
from turnwise.environments.revise.arguments import ReviseArguments
from turnwise.environments.search_qa.arguments import SearchArguments
from turnwise.environments.swe.arguments import SweArguments
from turnwise.environments.tool_calls.arguments import ToolCallsArguments

SECTIONS: dict[str, type[FamilyArguments]] = {
    "coding": CodingArguments,
    "countdown": CountdownArguments,
    "debate": DebateArguments,
    "delegate": DelegateArguments,
    "games": GamesArguments,
    "math_code": MathArguments,
    "memory": ChunksArguments,
    "plan": PlanArguments,
    "program_proposer": ProgramProposerArguments,
    "relay": RelayArguments,
    "repair": RepairArguments,
    "retry": RetryArguments,
    "revise": ReviseArguments,
    "search_proposer": SearchProposerArguments,
    "search_qa": SearchArguments,
    "swe": SweArguments,
    "tool_calls": ToolCallsArguments,
}


def test_every_family_without_a_section_here_is_an_adapter() -> None:
    others = {path.rpartition(".")[0] for name, path in FAMILIES.items() if name not in SECTIONS}
    assert {path.split(".")[2] for path in others} == {"adapters", "agents", "mcp", "verl_tool"}


@pytest.mark.parametrize("name", SECTIONS)
def test_every_argument_of_a_section_may_be_given_as_its_default(name: str) -> None:
    section = SECTIONS[name]
    defaults = section().model_dump(by_alias=True)
    assert isinstance(load_family(name, defaults), EnvironmentFamily)
    assert isinstance(load_family(name, {}), EnvironmentFamily)
    assert all(field.description for field in section.model_fields.values())


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sead": 1}, "sead=1: there is no such argument; did you mean 'seed'?"),
        ({"tool_timeout": 3.0}, "tool_timeout=3.0: there is no such argument; did you mean 'tool_timeout_s'?"),
        ({"seed": -1}, "seed=-1: it must be greater than or equal to 0"),
        ({"seed": True}, "seed=True: it must be a valid integer"),
        ({"seed": "1"}, "seed='1': it must be a valid integer"),
        ({"tool_timeout_s": 0}, "tool_timeout_s=0: it must be greater than or equal to 0.001"),
        ({"tool_timeout_s": float("inf")}, "tool_timeout_s=inf: it must be a finite number"),
        ({"max_observation_chars": 1.5}, "max_observation_chars=1.5: it must be a valid integer"),
    ],
)
def test_what_is_wrong_with_an_argument_is_said(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_family(name, arguments)
    assert str(raised.value).startswith(message)


def test_an_argument_with_another_name_inside_is_known_by_its_own() -> None:
    assert read_arguments(ToolCallsArguments, {"schema": "blanked"}).schema_ == "blanked"
    with pytest.raises(ConfigError, match=r"schema_='blanked': there is no such argument; did you mean 'schema'\?"):
        read_arguments(ToolCallsArguments, {"schema_": "blanked"})


def test_a_family_that_leads_nowhere_is_named() -> None:
    with pytest.raises(ConfigError, match=r"environment.name='serch' is neither a known name \(agent, coding,"):
        load_family("serch", {})
    with pytest.raises(ConfigError, match=r"environment.name='json:nothing': json has no 'nothing'"):
        load_family("json:nothing", {})
    with pytest.raises(ConfigError, match=r"a.args of 'json:loads': TypeError"):
        load_family("json:loads", {"seed": 1}, key="a")
    with pytest.raises(ConfigError, match="lacks one of task, build_environment, policy, texts"):
        load_family("collections:Counter", {})


def test_an_unknown_field_within_an_argument_is_told_those_that_are_there():
    server = {"command": "python", "type": "stdio"}
    with pytest.raises(ConfigError, match=r"servers\.a\.type='stdio': there is no 'type' there; use command, args"):
        read_arguments(McpArguments, {"servers": {"a": server}, "train_path": "a", "heldout_path": "b"})
