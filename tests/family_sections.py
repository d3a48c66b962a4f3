"""What every family owes whose arguments are one section: defaults that may be written down, errors that name them."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.arguments import FamilyArguments, read_arguments
from turnwise.environments.registry import load_family

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sead": 1}, "sead=1: unknown argument; did you mean 'seed'?"),
    ({"tool_timeout": 3.0}, "tool_timeout=3.0: unknown argument; did you mean 'tool_timeout_s'?"),
    ({"seed": -1}, "seed=-1: it must be greater than or equal to 0"),
    ({"seed": True}, "seed=True: it must be a valid integer"),
    ({"seed": "1"}, "seed='1': it must be a valid integer"),
    ({"tool_timeout_s": 0}, "tool_timeout_s=0: it must be greater than or equal to 0.001"),
    ({"tool_timeout_s": float("inf")}, "tool_timeout_s=inf: it must be a finite number"),
    ({"max_observation_chars": 1.5}, "max_observation_chars=1.5: it must be a valid integer"),
]
"""Arguments of any section, and how they are refused."""


def check_defaults(name: str, section: type[FamilyArguments]) -> None:
    """Load the family with every argument given as its default, and with none."""
    defaults = section().model_dump(by_alias=True)
    assert isinstance(load_family(name, defaults), EnvironmentFamily)
    assert isinstance(load_family(name, {}), EnvironmentFamily)
    assert all(field.description for field in section.model_fields.values())


def check_refusal(name: str, arguments: dict[str, Any], message: str) -> None:
    """Load the family with wrong arguments."""
    with pytest.raises(ConfigError) as raised:
        load_family(name, arguments)
    assert str(raised.value).startswith(message)


def check_unread_files(section: type[FamilyArguments]) -> None:
    """A path beside a mode that reads no file is refused; an empty one is none."""
    for name in ("train_path", "heldout_path"):
        with pytest.raises(ConfigError, match=rf"^{name}='rows.jsonl' has no effect in mode='(generated|fresh)'"):
            read_arguments(section, {name: "rows.jsonl"})
    assert read_arguments(section, {"train_path": ""}).seed == 0
