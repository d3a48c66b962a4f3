"""Runs untrusted reward code under a deadline: any failure becomes Invalid, never a reward of 0."""

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
    fn: Callable[[], Any], timeout_s: float | None, *, where: str = "the reward", thread: OwnThread | None = None
) -> Reward:
    """Call `fn` (plain or async) and return its result as a Reward, read by `core.returned`; `where` names it.

    Invalid, retryable: it raised, or ran past `timeout_s`. Invalid, not retryable: it returned something that is not a
    reward. A plain function runs in `thread`, or in one from the pool, which is abandoned at the deadline, not stopped;
    code that may hang for good belongs in a sandbox. `timeout_s` None: only the episode's own deadline applies.
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
