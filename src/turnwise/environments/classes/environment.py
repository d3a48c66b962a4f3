"""One episode of a plain class: its methods are the tools, its state gives the reward."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from turnwise.core.errors import ConfigError, EnvironmentFault, boundary
from turnwise.core.threads import run_in_thread
from turnwise.core.types import Invalid, Message, Reward, Scored, StopReason, Task, ToolCall, ToolRecord
from turnwise.environments.classes.contract import Contract, read_messages, read_next
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.rewards.guard import score_guarded
from turnwise.tools.tool import clip


class ClassEnvironment(ToolEnvironment):
    """Plays one episode on an object of its own.

    What a method raises is told to the model, as in TRL, and is on record as the call's error. A method that runs past
    `tool_timeout_s` makes the trajectory Invalid, and so does a reward that is missing or no finite number.
    """

    def __init__(self, contract: Contract, *, tool_timeout_s: float, max_observation_chars: int) -> None:
        """`tool_timeout_s` also limits the constructor, `reset` and `get_reward`."""
        super().__init__(tool_timeout_s=tool_timeout_s, max_observation_chars=max_observation_chars)
        self._contract = contract
        self._played: Any = None

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Builds the object and opens it with the task's row. The seed is in the row, not `seed`: it names the task."""
        contract, row = self._contract, dict(task.payload["row"])
        if "question" in task.payload:  # of `turnwise ask`, which changes a task's words
            raise EnvironmentFault(f"{contract.name} opens with what reset returns and takes no other question")
        self._played = await call_method(contract.build, f"{contract.name}()", self._tool_timeout_s)
        observation = await call_method(
            lambda: self._played.reset(**row), f"{contract.name}.reset", self._tool_timeout_s
        )
        if not contract.has_reward and not hasattr(self._played, "reward"):
            raise ConfigError(
                f"class {contract.name} has neither a method get_reward nor, after reset, an attribute reward; "
                "define get_reward(self) -> float"
            )
        messages = read_messages(row.get("prompt"), observation, contract.name)
        return messages, [getattr(self._played, name) for name in contract.tools]

    async def _call(self, call: ToolCall) -> ToolRecord:
        try:
            record = await super()._call(call)
        except EnvironmentFault as fault:
            cause = fault.__cause__
            text = str(cause) if isinstance(cause, ValueError) else f"{type(cause).__name__}: {cause}"
            observation, cut = clip(f"error: {text}", self._max_observation_chars)
            record = ToolRecord(call=call, observation=observation, error=observation, seconds=0.0, clipped_chars=cut)
        done = getattr(self._played, "done", False)
        self.done = not callable(done) and bool(done)
        return record

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """What `get_reward` returns, or the attribute `reward`; a truth value counts as 1 or 0."""
        name = f"{self._contract.name}.{'get_reward()' if self._contract.has_reward else 'reward'}"
        reward = await score_guarded(self._read_reward, self._tool_timeout_s)
        return replace(reward, reason=f"{name}: {reward.reason}") if isinstance(reward, Invalid) else reward

    async def _read_reward(self) -> Scored:
        value = await run_method(self._played.get_reward) if self._contract.has_reward else self._played.reward
        value = value.item() if hasattr(value, "item") else value  # a number of numpy or torch
        return Scored(total=float(value) if isinstance(value, Real) else value)

    async def ask_oracle(self) -> tuple[str, dict[str, Any]] | str:
        """What `_oracle` of this episode says is right to do next. Raises EnvironmentFault when it cannot say."""
        name = f"{self._contract.name}._oracle"
        return read_next(await call_method(lambda: self._played._oracle(), name, self._tool_timeout_s), self._contract)


async def run_method(method: Callable[[], Any]) -> Any:
    """What a plain or `async` method returns; a plain one runs in a daemon thread."""
    if inspect.iscoroutinefunction(method):
        return await method()
    result = await run_in_thread(method)
    return await result if inspect.isawaitable(result) else result


async def call_method(method: Callable[[], Any], name: str, timeout_s: float) -> Any:
    """What a method returns. Raises EnvironmentFault naming it when it raises or runs past `timeout_s`."""
    deadline = asyncio.timeout(timeout_s)
    try:
        with boundary(EnvironmentFault, f"{name} failed"):
            async with deadline:
                return await run_method(method)
    except EnvironmentFault as fault:
        if not deadline.expired():
            raise
        raise EnvironmentFault(
            f"{name} ran past {timeout_s:g} s; make it faster or raise environment.tool_timeout_s"
        ) from fault
