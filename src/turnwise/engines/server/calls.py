"""Requests to a server, and how its answers are read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, get_args

from turnwise.core.errors import EngineError
from turnwise.core.types import SamplingParams

Reason = Literal["stop", "length", "abort"]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Answer]):
    """One POST of JSON."""

    path: str
    body: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Any], Answer]
    """Converts the JSON of the answer (None if there was none). Raises EngineError if it has another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The tokens sampled for one request."""

    token_ids: list[int]
    logprobs: list[float]
    """One log-probability per token of `token_ids`."""
    reason: Reason
    version: str | None
    """The weight version that sampled all of it; None if no token was sampled."""


class Dialect(Protocol):
    """The protocol of one kind of server, as pure functions."""

    def refuse(self, params: SamplingParams) -> str | None:
        """Return why log-probabilities of the sampling distribution are not available with these parameters; None if
        they are."""
        ...

    def generate(self, name: str, prompt_ids: Sequence[int], params: SamplingParams, version: str) -> Call[Reply]:
        """Ask for a reply; `name` identifies the request, `version` the weights. Stop strings are not sent."""
        ...

    def abort(self, name: str) -> Call[None]:
        """End a request, which then returns what it has sampled so far."""
        ...

    def stage(self, folder: str) -> Call[list[Mapping[str, int]]] | None:
        """Let the server read weights without loading them; each of its processes answers with the checksums by tensor.
        None if the server cannot do this."""
        ...

    def commit(self, folder: str, version: str) -> Sequence[Call[None]]:
        """Load the weights, empty the prefix cache and set the version, in this order."""
        ...

    def score(self, token_ids: Sequence[int]) -> Call[list[float]]:
        """Ask for the log-probability of every token but the first, at temperature 1."""
        ...


@contextlib.contextmanager
def reading(answer: Any) -> Iterator[None]:
    """Raise EngineError, with the beginning of the answer, if it lacks a field or a field has another type."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"its answer cannot be read ({error!r}): {str(answer)[:200]}") from None


def read_nothing(answer: Any) -> None:
    """Read nothing: the status of the answer says everything."""


def make_reply(token_ids: list[int], logprobs: Sequence[Any] | None, reason: Any, version: str | None) -> Reply:
    """Build a reply, checking that its parts agree; `logprobs` is None if they were not sent. Raises EngineError."""
    if logprobs is None:
        raise EngineError("its answer has no log-probabilities")
    if len(logprobs) != len(token_ids):
        raise EngineError(f"its answer has {len(token_ids)} tokens and {len(logprobs)} log-probabilities")
    values = [float(logprob) for logprob in logprobs]
    # Rounding can put a certain token slightly above 0.
    if not all(math.isfinite(value) and value <= 1e-5 for value in values):
        raise EngineError("its answer has log-probabilities that are positive or not finite")
    if reason not in get_args(Reason):
        raise EngineError(f"its answer ended for the unknown reason {reason!r}")
    if token_ids and version is None:
        raise EngineError("its answer does not say which weights sampled it")
    if reason != "abort" and not token_ids:
        raise EngineError(f"its answer ended for the reason {reason!r} without any token")
    return Reply(
        token_ids=token_ids, logprobs=values, reason=cast(Reason, reason), version=version if token_ids else None
    )
