"""An OpenEnv environment for the test of the adapter: say "more" until the count is 3."""

from typing import Any

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
    word: str


class Count(Observation):
    count: int


class Counting(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Count:
        self.count = (seed or 0) % 3
        return Count(count=self.count)

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Count:
        self.count += action.word == "more"
        return Count(count=self.count, done=self.count == 3, reward=float(self.count == 3))

    @property
    def state(self) -> State:
        return State()


app = create_fastapi_app(Counting, Say, Count, max_concurrent_envs=16)
