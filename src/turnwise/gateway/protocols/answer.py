"""A reply while it is sampled: its text as it comes, and the whole reply at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from turnwise.gateway.protocols.call import Reply, slice_text
from turnwise.gateway.refusals import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some of a reply's text, or of its reasoning."""

    text: str
    is_thought: bool = False


class Answer:
    """What clients are told of one reply, from the first token on. Any number of them may read it."""

    def __init__(self, *, id: str, num_prompt_tokens: int, num_known_tokens: int) -> None:
        """The fields are those of `Reply`."""
        self.id = id
        self.num_prompt_tokens, self.num_known_tokens = num_prompt_tokens, num_known_tokens
        self.pieces: list[Piece] = []
        """What has come so far: reasoning before text."""
        self._end: Reply | Refusal | None = None
        self._changed = asyncio.Event()

    @classmethod
    def of(cls, reply: Reply) -> Answer:
        """Return the answer of a reply that was sampled whole."""
        answer = cls(id=reply.id, num_prompt_tokens=reply.num_prompt_tokens, num_known_tokens=reply.num_known_tokens)
        answer.finish(reply)
        return answer

    def add(self, pieces: Sequence[Piece]) -> None:
        """Note what has come."""
        if pieces and self._end is None:
            self.pieces += pieces
            self._tell()

    def finish(self, reply: Reply) -> None:
        """Note the whole reply, whose text follows what has come. Where it does not, the answer fails."""
        rest: list[Piece] = []
        for is_thought, text in ((True, reply.message.reasoning or ""), (False, reply.message.text)):
            told = "".join(piece.text for piece in self.pieces if piece.is_thought is is_thought)
            is_late = is_thought and any(not piece.is_thought for piece in self.pieces)
            if not text.startswith(told) or (is_late and text != told):
                problem = "the reply is not what was streamed of it; send the request without stream"
                self.fail(Refusal(problem, status=500, code="stream_differs"))
                return
            rest += [Piece(text=part, is_thought=is_thought) for part in slice_text(text[len(told) :])]
        self.pieces += rest
        self._end = reply
        self._tell()

    def fail(self, refusal: Refusal) -> None:
        """Note that no more will come."""
        self._end = refusal
        self._tell()

    async def read_pieces(self) -> AsyncIterator[Piece]:
        """Return reasoning and text as they come, in pieces that are not empty. Raises Refusal if the reply fails."""
        count = 0
        while True:
            changed = self._changed
            while count < len(self.pieces):
                count += 1
                yield self.pieces[count - 1]
            if self._end is not None:
                break
            await changed.wait()
        if isinstance(self._end, Refusal):
            raise self._end

    async def read_reply(self) -> Reply:
        """Return the whole reply. Raises Refusal if it fails."""
        while self._end is None:
            await self._changed.wait()
        if isinstance(self._end, Refusal):
            raise self._end
        return self._end

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
