"""Arguments of families: one section each, unknown ones with the nearest known, what may stand in a recipe."""

from __future__ import annotations

from typing import Any

import pytest
from family_sections import WRONG, check_defaults, check_refusal, check_unread_files

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, read_arguments
from turnwise.environments.countdown.arguments import CountdownArguments
from turnwise.environments.math_code.arguments import MathArguments
from turnwise.environments.mcp.arguments import McpArguments
from turnwise.environments.registry import FAMILIES, load_family
from turnwise.environments.search_qa.arguments import SearchArguments

SECTIONS: dict[str, type[FamilyArguments]] = {
    "countdown": CountdownArguments,
    "math_code": MathArguments,
    "search_qa": SearchArguments,
}


def test_every_family_that_needs_no_argument_has_a_section_here() -> None:
    assert set(FAMILIES) == {*SECTIONS, "agent", "labels", "mcp"}


@pytest.mark.parametrize("name", SECTIONS)
def test_every_argument_of_a_section_may_be_given_as_its_default(name: str) -> None:
    check_defaults(name, SECTIONS[name])


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_is_wrong_with_an_argument_is_said(name: str, arguments: dict[str, Any], message: str) -> None:
    check_refusal(name, arguments, message)


def test_a_family_that_leads_nowhere_is_named() -> None:
    with pytest.raises(ConfigError, match=r"environment.name='serch' is neither a known name \(agent, countdown,"):
        load_family("serch", {})
    with pytest.raises(ConfigError, match=r"environment.name='json:nothing': json has no 'nothing'"):
        load_family("json:nothing", {})
    with pytest.raises(ConfigError, match=r"a.args of 'json:loads': TypeError"):
        load_family("json:loads", {"seed": 1}, key="a")
    with pytest.raises(ConfigError, match="lacks one of task, build_environment, policy, texts"):
        load_family("collections:Counter", {})


def test_an_unknown_field_within_an_argument_is_told_those_that_are_there():
    server = {"command": "python", "type": "stdio"}
    with pytest.raises(ConfigError, match=r"servers\.a\.type='stdio': unknown name 'type'; use command, args"):
        read_arguments(McpArguments, {"servers": {"a": server}, "train_path": "a", "heldout_path": "b"})


@pytest.mark.parametrize("section", [MathArguments, SearchArguments])
def test_a_file_that_the_mode_does_not_read_is_refused(section: type[FamilyArguments]) -> None:
    check_unread_files(section)


def test_a_corpus_that_the_mode_does_not_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"corpus_path='c.jsonl' has no effect in mode='fixed'"):
        read_arguments(SearchArguments, {"corpus_path": "c.jsonl", "mode": "fixed"})
