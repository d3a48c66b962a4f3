"""OpenEnv: an environment behind a server, reached with the package's generic client, which does not import the
environment.

The server already runs (`url`), or is started on loopback for the run (`app`). Every episode is a session, and a
scripted policy plays in its own session, so the server must allow several at once.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from turnwise.core.errors import ConfigError, ToolFailure, boundary
from turnwise.core.packages import require_package
from turnwise.environments.arguments import Seconds, read_arguments
from turnwise_adapters.game_family import GameArguments, GameFamily
from turnwise_adapters.text_game import Outcome, TextGame


class OpenEnvArguments(GameArguments):
    """Which server, and how text becomes an action."""

    url: str = ""
    """Address of a running server, such as "http://127.0.0.1:8000"."""
    app: str = ""
    """Instead of `url`: the application "module:name", served by uvicorn on loopback during the run."""
    start_timeout_s: Seconds = 120.0
    """Seconds until a started server must answer."""
    field: str = ""
    """Field of the environment's action that holds the text; empty reads the text as a JSON object of all fields."""
    actions: list[str] = Field(default_factory=list)
    """The legal actions; an empty list allows any text."""
    observation: str = ""
    """Field of the observation that the player sees; empty shows every field on its own line."""
    win_reward: float = 0.0
    """The episode is won if it ends and its last reward is above this."""


class OpenEnvGame(TextGame):
    """One session."""

    def __init__(self, chosen: OpenEnvArguments, url: str) -> None:
        """`url` is the server's address."""
        self._chosen = chosen
        self._url = url
        self._client: Any = None

    def open(self, seed: int) -> str:
        """Connect and reset. Raises ConfigError if no server answers."""
        from openenv import GenericEnvClient

        with boundary(ConfigError, f"no OpenEnv server answers at {self._url}"):
            self._client = GenericEnvClient(base_url=self._url).sync()
            self._client.connect()
            result = self._client.reset(seed=seed)
        self.is_over_at_once = bool(result.done)
        return self._show(result.observation)

    def _show(self, observation: Mapping[str, Any]) -> str:
        if self._chosen.observation:
            if self._chosen.observation not in observation:
                raise ConfigError(
                    f"observation={self._chosen.observation!r}: the server sends {', '.join(observation)}"
                )
            return str(observation[self._chosen.observation])
        shown = {key: value for key, value in observation.items() if key not in ("done", "reward", "metadata")}
        return "\n".join(
            f"{key}: {value if isinstance(value, str) else json.dumps(value)}" for key, value in shown.items()
        )

    def legal_actions(self) -> Sequence[str]:
        """Return the actions listed in the recipe."""
        return self._chosen.actions

    def step(self, action: str) -> Outcome:
        """See `TextGame.step`. Text that the server cannot read is an illegal action."""
        fields = {self._chosen.field: action} if self._chosen.field else _read_object(action)
        try:
            result = self._client.step(fields)
        except RuntimeError as cause:
            if "VALIDATION_ERROR" not in str(cause):
                raise
            raise ToolFailure(f"the environment refuses this action: {cause}"[:500]) from None
        reward, done = float(result.reward or 0.0), bool(result.done)
        won = done and reward > self._chosen.win_reward
        return Outcome(text=self._show(result.observation), reward=reward, done=done, won=won)

    def close(self) -> None:
        """End the session."""
        if self._client is not None:
            self._client.close()


def _read_object(action: str) -> dict[str, Any]:
    try:
        fields = json.loads(action)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise ToolFailure("an action is a JSON object of the environment's fields")
    return fields


def start_server(app: str, timeout_s: float) -> tuple[str, subprocess.Popen[bytes]]:
    """Serve an application on a free port of loopback. Returns its URL and process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", app, "--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}", process
        time.sleep(0.1)
    process.kill()
    last = (process.communicate()[1].decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    raise ConfigError(f"app={app!r} did not answer within {timeout_s:g} s: {last[:300]}")


class OpenEnv(GameFamily):
    """Implements `EnvironmentFamily`."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `OpenEnvArguments`. Raises ConfigError."""
        chosen = read_arguments(OpenEnvArguments, arguments)
        if bool(chosen.url) == bool(chosen.app):
            raise ConfigError("openenv needs either url, for a running server, or app, to start one")
        require_package("openenv", "0.10", "openenv")
        url = chosen.url
        if chosen.app:
            url, process = start_server(chosen.app, chosen.start_timeout_s)
            weakref.finalize(self, process.kill)
        super().__init__("openenv", chosen.app or chosen.url, chosen, lambda: OpenEnvGame(chosen, url))
