"""Untrusted reward code under a deadline: what goes wrong becomes Invalid, never a reward of 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from turnwise.core.errors import RewardError, boundary
from turnwise.core.holding import named
from turnwise.core.returned import read_reward
from turnwise.core.threads import OwnThread, run_method
from turnwise.core.types import Invalid, Reward


async def score_guarded(
    fn: Callable[[], Any], timeout_s: float, *, where: str = "the reward", thread: OwnThread | None = None
) -> Reward:
    """The result of `fn` (plain or async) as a Reward, read as `core.returned` says; `where` names it.

    Invalid, retryable: it raised, or ran past `timeout_s`. Invalid, not retryable: it returned what is no reward. A
    plain function runs in `thread`, or one of the pool, which a deadline abandons rather than stops; code that may hang
    for good belongs in a sandbox.
    """
    try:
        with boundary(RewardError, f"{where} raised"):
            async with asyncio.timeout(timeout_s) as deadline:
                result: Any = await named(where, run_method(fn, thread=thread))
    except RewardError as error:
        if deadline.expired():
            return Invalid(reason=f"{where} took longer than {timeout_s} s", retryable=True)
        return Invalid(reason=str(error), retryable=True)
    return read_reward(result, where)
