"""OpenEnv through the adapter: a real server process on loopback."""

import asyncio
import os
from pathlib import Path

import pytest
from played_games import act, check_family, need, success

from turnwise.core.errors import ConfigError
from turnwise.environments.registry import load_family


@pytest.fixture(autouse=True)
def _server_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    need("openenv", "openenv")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


SERVER = {"app": "counting_server:app", "field": "word", "actions": ["more", "less"], "max_actions": 12}


def test_episodes_are_sessions_of_a_server() -> None:
    family = check_family("openenv", SERVER, count=2)
    assert family.task("train", 0).prompt[0].text.startswith("count: ")
    assert success(family, "random", 4) >= 0.5
    start = family.task("heldout", 0).payload["seed"] % 3
    seen, reward = asyncio.run(act(family, ["less", *["more"] * (3 - start)]))
    assert seen[0] == f"count: {start}"
    assert (reward.total, reward.part("success")) == (1.0, 1.0)


def test_an_action_that_the_server_cannot_read_is_told_to_the_model() -> None:
    arguments = {**SERVER, "field": "", "actions": []}
    seen, reward = asyncio.run(act(load_family("openenv", arguments), ["more", '{"number": 1}']))  # type: ignore[arg-type]
    assert seen[0] == "error: an action is a JSON object of the environment's fields"
    assert seen[1].startswith("error: the environment refuses this action")
    assert reward.part("illegal_actions") == 2.0


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(ConfigError, match="either url"):
        load_family("openenv", {})
    with pytest.raises(ConfigError, match=r"no OpenEnv server answers at http://127.0.0.1:9"):
        load_family("openenv", {"url": "http://127.0.0.1:9"}).task("train", 0)
    with pytest.raises(ConfigError, match="'no_such_server:app' did not answer"):
        load_family("openenv", {"app": "no_such_server:app"})
