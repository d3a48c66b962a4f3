"""What a server is asked, and how its answer reads."""

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
    """The JSON that came back, None where there was none, to what it says. Raises EngineError for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What was sampled for one request."""

    token_ids: list[int]
    logprobs: list[float]
    """As long as `token_ids`."""
    reason: Reason
    version: str | None
    """Of the weights that sampled all of it; None where no token was."""


class Dialect(Protocol):
    """How one kind of server is spoken with: pure functions."""

    def refuse(self, params: SamplingParams) -> str | None:
        """Why these parameters cannot be had with log-probabilities of what is sampled; None if they can."""
        ...

    def generate(self, name: str, prompt_ids: Sequence[int], params: SamplingParams, version: str) -> Call[Reply]:
        """Ask for a reply; `name` is the request's, `version` names the weights. Stop strings are not sent."""
        ...

    def abort(self, name: str) -> Call[None]:
        """End a request, which is then answered with what it has."""
        ...

    def stage(self, folder: str) -> Call[list[Mapping[str, int]]] | None:
        """Let the server read weights without loading them; the checksums by tensor, of each of its processes. None
        where it cannot."""
        ...

    def commit(self, folder: str, version: str) -> Sequence[Call[None]]:
        """Load the weights, empty the prefix cache and name the version, in order."""
        ...

    def score(self, token_ids: Sequence[int]) -> Call[list[float]]:
        """Ask for the log-probability of every token but the first, at temperature 1."""
        ...


@contextlib.contextmanager
def reading(answer: Any) -> Iterator[None]:
    """Raise EngineError, with the beginning of the answer, where it lacks a field or a field has another type."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"its answer cannot be read ({error!r}): {str(answer)[:200]}") from None


def read_nothing(answer: Any) -> None:
    """Of a call whose status says everything."""


def make_reply(token_ids: list[int], logprobs: Sequence[Any] | None, reason: Any, version: str | None) -> Reply:
    """A reply whose parts agree; `logprobs` None were not sent. Raises EngineError."""
    if logprobs is None:
        raise EngineError("its answer has no log-probabilities")
    if len(logprobs) != len(token_ids):
        raise EngineError(f"its answer has {len(token_ids)} tokens and {len(logprobs)} log-probabilities")
    values = [float(logprob) for logprob in logprobs]
    # Rounding puts a certain token a little above 0.
    if not all(math.isfinite(value) and value <= 1e-5 for value in values):
        raise EngineError("its answer has log-probabilities above 0 or not finite")
    if reason not in get_args(Reason):
        raise EngineError(f"its answer ended for the unknown reason {reason!r}")
    if token_ids and version is None:
        raise EngineError("its answer does not say which weights sampled it")
    if reason != "abort" and not token_ids:
        raise EngineError(f"its answer ended for the reason {reason!r} without a token")
    return Reply(
        token_ids=token_ids, logprobs=values, reason=cast(Reason, reason), version=version if token_ids else None
    )
