"""A family of ours as a class for TRL's `environment_factory`, read as TRL reads it."""

import inspect
from typing import Any

import pytest
from transformers.utils import get_json_schema

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import ToolSpec
from turnwise.testing.notes import NotesFamily
from turnwise_adapters.as_trl import build_method, to_trl, to_trl_rows


def list_methods(kind: type) -> dict[str, Any]:
    """The tools that TRL finds: public functions of the class but for `reset` and `get_reward`."""
    members = inspect.getmembers(kind, predicate=inspect.isfunction)
    return {name: each for name, each in members if name not in ("reset", "get_reward") and name[0] != "_"}


def test_an_episode_is_played_with_its_methods() -> None:
    kind = to_trl(NotesFamily(linked=0.0))
    assert set(list_methods(kind)) == {"answer", "search"}
    environment = kind()
    row = to_trl_rows(3)[2]
    opening = environment.reset(**row)
    assert environment.reset(**row) == opening
    assert environment.reset(**to_trl_rows(1)[0]) != opening
    environment.reset(**row)
    told = environment.search(query=opening.split()[-1])
    assert told.startswith("code ")
    environment.answer(text=f"<answer> {told.split()[-1]} </answer>")
    assert environment.get_reward() == 1.0
    with pytest.raises(EnvironmentFault, match="call reset"):
        environment.search(query="more")


def test_an_episode_without_an_answer_gets_its_reward_and_one_that_never_began_none() -> None:
    environment = to_trl(NotesFamily())()
    assert environment.get_reward() is None
    environment.reset(**to_trl_rows(1)[0])
    assert environment.get_reward() == 0.0


def test_transformers_reads_the_tools_schema_again() -> None:
    properties = {
        "word": {"type": "string", "description": "What to look for."},
        "limit": {"type": "integer", "description": "Most results."},
        "exact": {"type": "boolean", "description": "No other spelling."},
        "order": {"type": "string", "description": "Which comes first.", "enum": ["new", "old"]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["word", "exact"]}
    tool = ToolSpec(name="look", description="Look up a word.", parameters=parameters)
    method = type("Holder", (), {"look": build_method(tool)})().look
    read = get_json_schema(method)["function"]
    assert (read["name"], read["description"], read["parameters"]) == (tool.name, tool.description, parameters)


def test_a_tool_that_cannot_be_a_method_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = (ToolSpec(name="get_reward", description="", parameters={"type": "object", "properties": {}}),)
    monkeypatch.setattr("turnwise_adapters.as_trl._list_tools", lambda family, split: tools)
    with pytest.raises(ConfigError, match="'get_reward' cannot be used as a method"):
        to_trl(NotesFamily())
