"""An engine without a model that replies from a script. Public, for tests and for trying an environment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from turnwise.core.errors import EngineError, boundary
from turnwise.core.keys import Span
from turnwise.core.protocols import Receive, Renderer
from turnwise.core.types import (
    Completion,
    FinishReason,
    IntArray,
    Message,
    Prompt,
    SamplingParams,
    Session,
    text_message,
    to_floats,
    to_ids,
)

Script = Sequence[Message | str] | Callable[[IntArray], Message | str]


class ScriptedEngine:
    """Implements `core.protocols.Engine`. Every session plays the script from its start.

    A script is a sequence of replies, or a function from the prompt's token ids to the next reply. A string is an
    assistant message with that text (the renderer encodes tags and tool calls written in it). Replies are certain:
    log-probabilities are 0. `version` may be set."""

    def __init__(self, renderer: Renderer, script: Script) -> None:
        self._renderer = renderer
        self._script = script
        self._turns: dict[Session, int] = {}
        self._is_closed = False
        self.version = 0
        self.requests: list[tuple[Session, IntArray, SamplingParams]] = []
        """Every request, in order: session, prompt, params."""
        self.images: list[tuple[Span, ...]] = []
        """Places of each request's prompt that stand for pictures, in the order of `requests`."""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """Return the next reply of the script, cut at `max_tokens`. Raises EngineError if there is none or the script
        raises."""
        return await self.generate_seeing(Prompt(token_ids=prompt_ids), params, session=session)

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        """Return the next reply as `generate` does; no picture is looked at."""
        if self._is_closed:
            raise EngineError(f"the engine is closed and rejected the request of '{session}'")
        turn = self._turns.get(session, 0)
        self._turns[session] = turn + 1
        self.requests.append((session, prompt.token_ids, params))
        self.images.append(prompt.images)
        if callable(self._script):
            with boundary(EngineError, f"the engine's script failed for '{session}'"):
                reply = self._script(prompt.token_ids)
        elif turn < len(self._script):
            reply = self._script[turn]
        else:
            raise EngineError(
                f"the script is over: session '{session}' asks for reply {turn + 1} of {len(self._script)}; add a "
                "reply, or end the episode with the last one"
            )
        message = text_message("assistant", reply) if isinstance(reply, str) else reply
        ids = self._renderer.encode_reply(message)
        kept = to_ids(ids[: params.max_tokens])
        return Completion(
            token_ids=kept,
            logprobs=to_floats(np.zeros(len(kept))),
            finish_reason=FinishReason.LENGTH if len(kept) < len(ids) else FinishReason.STOP,
            version_first=self.version,
            version_last=self.version,
        )

    async def stream(
        self, prompt_ids: IntArray, params: SamplingParams, *, session: Session, receive: Receive
    ) -> Completion:
        """Return the next reply as `generate` does, one token after the other."""
        completion = await self.generate(prompt_ids, params, session=session)
        for token in completion.token_ids.tolist():
            receive([token])
            await asyncio.sleep(0)
        return completion

    async def release(self, session: Session) -> None:
        """Forget the session's place in the script."""
        self._turns.pop(session, None)

    async def close(self) -> None:
        """Refuse later requests."""
        self._is_closed = True
