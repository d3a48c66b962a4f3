"""Arguments of the worlds: one section each, which every name that the package offers has."""

from __future__ import annotations

from shutil import which
from typing import Any

import pytest
from family_sections import WRONG, check_defaults, check_refusal, check_unread_files

from turnwise.core.errors import ConfigError
from turnwise.core.packages import OFFERED
from turnwise.environments.arguments import FamilyArguments, read_arguments
from turnwise_worlds.coding.arguments import CodingArguments
from turnwise_worlds.coq.arguments import CoqArguments
from turnwise_worlds.debate.arguments import DebateArguments
from turnwise_worlds.delegate.arguments import DelegateArguments
from turnwise_worlds.devices.arguments import DevicesArguments
from turnwise_worlds.games.arguments import GamesArguments
from turnwise_worlds.house.arguments import HouseArguments
from turnwise_worlds.lean.arguments import LeanArguments
from turnwise_worlds.memory.chunks.arguments import ChunksArguments
from turnwise_worlds.miniwob.arguments import MiniwobArguments
from turnwise_worlds.pages.arguments import PagesArguments
from turnwise_worlds.plan.arguments import PlanArguments
from turnwise_worlds.proofs.arguments import ProofsArguments
from turnwise_worlds.proposer.arguments import ProgramProposerArguments, SearchProposerArguments
from turnwise_worlds.push.arguments import PushArguments
from turnwise_worlds.relay.arguments import RelayArguments
from turnwise_worlds.repair.arguments import RepairArguments
from turnwise_worlds.retry.arguments import RetryArguments
from turnwise_worlds.revise.arguments import ReviseArguments
from turnwise_worlds.screens.arguments import ScreensArguments
from turnwise_worlds.tool_calls.arguments import ToolCallsArguments
from turnwise_worlds.web.arguments import WebArguments

SECTIONS: dict[str, type[FamilyArguments]] = {
    "coding": CodingArguments,
    "coq": CoqArguments,
    "debate": DebateArguments,
    "delegate": DelegateArguments,
    "devices": DevicesArguments,
    "games": GamesArguments,
    "house": HouseArguments,
    "lean": LeanArguments,
    "memory": ChunksArguments,
    "miniwob": MiniwobArguments,
    "pages": PagesArguments,
    "plan": PlanArguments,
    "program_proposer": ProgramProposerArguments,
    "proofs": ProofsArguments,
    "push": PushArguments,
    "relay": RelayArguments,
    "repair": RepairArguments,
    "retry": RetryArguments,
    "revise": ReviseArguments,
    "screens": ScreensArguments,
    "search_proposer": SearchProposerArguments,
    "tool_calls": ToolCallsArguments,
    "web": WebArguments,
}


NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(name == "coq" and which("coqtop") is None, reason="coqtop is missing"))
    for name in SECTIONS
]


def test_every_world_has_a_section_here() -> None:
    assert sorted(SECTIONS) == sorted(OFFERED["turnwise-worlds"]["turnwise.environments"])


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_of_a_world_may_be_given_as_its_default(name: str) -> None:
    check_defaults(name, SECTIONS[name])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_is_wrong_with_an_argument_of_a_world_is_said(name: str, arguments: dict[str, Any], message: str) -> None:
    check_refusal(name, arguments, message)


def test_an_argument_with_another_name_inside_is_known_by_its_own() -> None:
    assert read_arguments(ToolCallsArguments, {"schema": "blanked"}).schema_ == "blanked"
    with pytest.raises(ConfigError, match=r"schema_='blanked': unknown argument; did you mean 'schema'\?"):
        read_arguments(ToolCallsArguments, {"schema_": "blanked"})


@pytest.mark.parametrize("section", [CodingArguments, ProofsArguments, ToolCallsArguments])
def test_a_file_that_the_mode_of_a_world_does_not_read_is_refused(section: type[FamilyArguments]) -> None:
    check_unread_files(section)
