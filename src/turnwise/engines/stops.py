"""Stop strings: a reply ends with the token that completes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

STOP_TAIL_TOKENS = 16
"""Longest text tail, in tokens, searched for a stop string."""


def completes_stop(sampled: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> bool:
    """Whether the last of these tokens, of which no earlier one did, completes a stop string."""
    tail = decode(sampled[-STOP_TAIL_TOKENS:])
    return any(text in tail for text in stop)
