"""A model behind an API that plays a run's held-out tasks, to compare the run with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.config.roles import split_address
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.types import Invalid, TrajectoryGroup
from turnwise.rollout.policies import RolePolicy
from turnwise.rollout.served import REPLY_S, RETRIES_S, ServedRole, Usage
from turnwise.rollout.workers import find_cause
from turnwise.runs.build import System
from turnwise.runs.roles import list_roles
from turnwise.tools.chat_api import ChatApi

MAX_CAUSES = 5
"""Most causes of failures that a summary names."""


@dataclass(slots=True, kw_only=True)
class ForeignModel:
    """A model behind an OpenAI-style API, which speaks for every role. Use it for one evaluation."""

    address: str
    """"URL#MODEL", with or without "api:" before it."""
    prompt_price: float = 0.0
    """Price of a million tokens that it reads, in any currency; so is `reply_price` of those that it writes."""
    reply_price: float = 0.0
    usage: Usage = field(default_factory=Usage)
    """What it took so far."""
    api: ChatApi | None = None
    """None before it is open."""

    @property
    def model(self) -> str:
        """Its name at the server."""
        return split_address(self.address.removeprefix("api:"))[1]

    @property
    def label(self) -> str:
        """What people call it."""
        return f"{self.model} by API"

    async def open(self, config: RunConfig) -> None:
        """Connect, with the limits of a recipe. Raises ConfigError with the remedy unless it is an address whose server
        answers and accepts the key."""
        url, model = split_address(self.address.removeprefix("api:"))
        if not model:
            raise ConfigError(f"--model {self.address!r} names no model; write URL#MODEL")
        self.api = ChatApi(
            url,
            model,
            max_tokens=config.rollout.max_turn_tokens,
            seed=config.run.seed,
            source="--model",
            max_concurrent=config.engine.max_concurrency,
            timeout_s=REPLY_S,
            retries_s=RETRIES_S,
        )
        await self.api.check()

    def policies(self, system: System) -> Mapping[str, RolePolicy]:
        """What speaks for the roles of the system's environment, once it is open."""
        assert self.api is not None
        return dict.fromkeys(
            list_roles(system.family), ServedRole(api=self.api, renderer=system.renderer, usage=self.usage)
        )

    def describe(self, groups: Sequence[TrajectoryGroup]) -> dict[str, Any]:
        """What it took, and why attempts could not be scored, as plain data of a summary."""
        usage = self.usage
        failures = Counter(
            find_cause(trajectory.reward.reason, group.draw)
            for group in groups
            for trajectory in group.trajectories
            if isinstance(trajectory.reward, Invalid)
        )
        return {
            "model": self.model,
            "requests": usage.num_requests,
            "uncounted": usage.num_uncounted,
            "prompt_tokens": usage.prompt_tokens,
            "reply_tokens": usage.reply_tokens,
            "cost": (usage.prompt_tokens * self.prompt_price + usage.reply_tokens * self.reply_price) / 1e6,
            "failures": dict(failures.most_common(MAX_CAUSES)),
        }

    async def close(self) -> None:
        """Close the connections."""
        if self.api is not None:
            await self.api.close()
