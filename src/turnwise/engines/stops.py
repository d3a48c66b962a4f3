"""Stop strings: a reply ends with the token that completes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from turnwise.core.errors import EngineError, boundary
from turnwise.core.types import Session

STOP_TAIL_TOKENS = 16
"""Longest tail of the text, in tokens, that is searched for a stop string."""


@contextmanager
def looking_for_stop(session: Session) -> Iterator[None]:
    """Raise EngineError, which concerns this request alone, for whatever decoding its tokens raises."""
    with boundary(EngineError, f"the engine cannot look for the end of the reply of '{session}'"):
        yield


def completes_stop(sampled: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str]) -> bool:
    """Return whether the last of these tokens completes a stop string, given that no earlier one did."""
    tail = decode(sampled[-STOP_TAIL_TOKENS:])
    return any(text in tail for text in stop)


def find_stop(
    sampled: Sequence[int], stop: Sequence[str], decode: Callable[[Sequence[int]], str], *, start: int = 0
) -> int | None:
    """Return the number of tokens at which a stop string is first complete, looking from `start` on; None if none
    is."""
    for num_tokens in range(start + 1, len(sampled) + 1):
        if completes_stop(sampled[max(0, num_tokens - STOP_TAIL_TOKENS) : num_tokens], stop, decode):
            return num_tokens
    return None
