"""Why a request is refused. Each protocol writes a refusal in its own form."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.core.errors import TurnwiseError

MAX_LINE = 500
"""Most characters of what is told about a refusal: it may show what a client sent."""


@dataclass(eq=False)
class Refusal(TurnwiseError):
    """A request that is not answered.

    Clients repeat 408, 409, 429 and 5xx by themselves; a refusal that would be the same again says so in a header.
    """

    problem: str
    """What is wrong and what to do, in one line."""
    status: int = 400
    field: str | None = None
    """The field of the request, such as "messages[2].content"; None if no field is wrong."""
    code: str = "invalid_request"
    retry_after_s: float | None = None
    """When the same request may be answered; None if never."""

    def __str__(self) -> str:
        line = " ".join((f"{self.field}: {self.problem}" if self.field else self.problem).split())
        return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE // 2]} ... {line[-MAX_LINE // 2 :]}"
