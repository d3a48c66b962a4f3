"""What each protocol's module provides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from turnwise.gateway.protocols.answer import Answer
from turnwise.gateway.protocols.call import Call, Event, Reply
from turnwise.gateway.protocols.pictures import PictureReader
from turnwise.gateway.refusals import Refusal


class Writer(Protocol):
    """Reads and writes one protocol."""

    def read(self, body: Mapping[str, Any], pictures: PictureReader | None = None) -> Call:
        """Understand a request; `pictures` reads those in it, None if the policy reads text. Raises Refusal that names
        the field which cannot be honoured."""
        ...

    def write(self, call: Call, replies: Sequence[Reply], created: int) -> dict[str, Any]:
        """Return the answer; `created` is in Unix seconds."""
        ...

    def write_events(self, call: Call, answers: Sequence[Answer], created: int) -> AsyncIterator[Event]:
        """Return the same answer as events while it comes. The last one says that the answer is complete. Raises
        Refusal if a reply fails."""
        ...

    def write_refusal(self, refusal: Refusal) -> dict[str, Any]:
        """Return the body of a refusal."""
        ...

    def write_failure(self, refusal: Refusal) -> Event:
        """Return the event that ends a stream whose reply failed."""
        ...
