"""Replies that clients may ask for again by their id: `GET /v1/responses/ID`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.gateway.refusals import Refusal

MAX_STORED = 100
"""Most answers that a session keeps; the oldest go first. Their tokens stay in the session."""


class StoredReplies:
    """Answers as they were written, by id."""

    def __init__(self) -> None:
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._deleted: set[str] = set()

    def keep(self, answer: Mapping[str, Any]) -> None:
        """Keep an answer. The same again changes nothing, nor does one that was deleted."""
        if answer["id"] in self._deleted:
            return
        self._answers[answer["id"]] = answer
        for oldest in list(self._answers)[:-MAX_STORED]:
            del self._answers[oldest]

    def read(self, issued: str) -> Mapping[str, Any]:
        """Return an answer. Raises Refusal for one that is not kept."""
        answer = self._answers.get(issued)
        if answer is None:
            raise Refusal(
                f"{issued[:60]!r} is no stored reply of this session, which keeps the last {MAX_STORED}",
                status=404,
                field="response_id",
                code="response_not_found",
            )
        return answer

    def delete(self, issued: str) -> dict[str, Any]:
        """Forget an answer: it can neither be read nor continued by its id. Raises Refusal for one that is not kept."""
        self.read(issued)
        del self._answers[issued]
        self._deleted.add(issued)
        return {"id": issued, "object": "response", "deleted": True}

    def is_deleted(self, issued: str) -> bool:
        """Whether a client has deleted an answer."""
        return issued in self._deleted
