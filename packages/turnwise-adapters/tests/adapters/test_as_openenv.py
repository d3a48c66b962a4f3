"""A family of ours as an OpenEnv server, played through OpenEnv's own client and our adapter for foreign servers."""

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from played_games import act, need

from turnwise.core.errors import EnvironmentFault
from turnwise.environments.registry import load_family
from turnwise.testing.notes import NotesFamily

SERVER = {"app": "notes_server:app", "field": "text", "observation": "text", "max_actions": 4}


@pytest.fixture(autouse=True)
def _server_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    need("openenv", "openenv")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


def test_what_is_served_can_be_played_from_outside() -> None:
    family = load_family("openenv", SERVER)
    opening = family.task("heldout", 0).prompt[0].text
    call = json.dumps({"name": "search", "arguments": {"query": opening.split()[-1]}})
    seen, _ = asyncio.run(act(family, [call]))  # type: ignore[arg-type]
    assert seen[0].startswith("code ")
    _, reward = asyncio.run(act(family, [call, f"<answer> {seen[0].split()[-1]} </answer>"]))  # type: ignore[arg-type]
    assert reward.total == 1.0


def test_a_wrong_answer_gets_nothing() -> None:
    _, reward = asyncio.run(act(load_family("openenv", SERVER), ["<answer> no </answer>"]))  # type: ignore[arg-type]
    assert reward.total == 0.0


def test_the_end_of_a_session_frees_its_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    from openenv.core.env_server import http_server

    from turnwise_adapters.as_openenv import to_openenv

    monkeypatch.setattr(http_server, "create_fastapi_app", lambda server, *_, **options: server)
    server = to_openenv(NotesFamily())()

    async def play() -> None:
        await server.reset_async(seed=1)
        await asyncio.to_thread(server.close)
        await asyncio.sleep(0.05)
        with pytest.raises(EnvironmentFault, match="no episode is running"):
            await server.step_async(SimpleNamespace(text="more"))

    asyncio.run(play())
