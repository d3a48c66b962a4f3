"""Untrusted reward code under a deadline: what goes wrong becomes Invalid, never a reward of 0."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from numbers import Real
from typing import Any

from turnwise.core.errors import RewardError, boundary
from turnwise.core.threads import run_in_thread
from turnwise.core.types import Invalid, Reward, RewardPart, Scored


async def score_guarded(fn: Callable[[], Reward | float | Awaitable[Reward | float]], timeout_s: float) -> Reward:
    """The result of `fn` (plain or async) as a Reward; a bare number becomes `Scored` with that total.

    Invalid, retryable: it raised, or ran past `timeout_s`. Invalid, not retryable: it returned something that is not a
    finite number. A plain function runs in a thread of its own, which a deadline abandons rather than stops; code that
    may hang for good belongs in a sandbox.
    """
    try:
        with boundary(RewardError, "the reward raised"):
            async with asyncio.timeout(timeout_s) as deadline:
                result: Any = await (fn() if inspect.iscoroutinefunction(fn) else run_in_thread(fn))
                if inspect.isawaitable(result):
                    result = await result
    except RewardError as error:
        if deadline.expired():
            return Invalid(reason=f"the reward took longer than {timeout_s} s", retryable=True)
        return Invalid(reason=str(error), retryable=True)
    return _checked(result)


def _checked(result: Any) -> Reward:
    if isinstance(result, Invalid):
        return result
    scored = result if isinstance(result, Scored) else Scored(total=result)
    for part in (RewardPart(name="total", value=scored.total), *scored.parts):
        value: Any = part.value
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            return Invalid(reason=f"the reward's {part.name} is {value!r}, not a finite number", retryable=False)
    return scored
