"""A role played by a model behind an OpenAI-style API: text in, text out, and no log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnwise.core.errors import EngineError
from turnwise.core.protocols import Renderer
from turnwise.core.types import Completion, FinishReason, Message, SamplingParams, Session, Task, reply_message
from turnwise.pictures.chat_parts import ToUrl, embed, write_content
from turnwise.rendering.images import find_pictures
from turnwise.rollout.attempt import Attempt
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.policies import encode_scripted
from turnwise.tools.chat_api import ChatApi

REPLY_S = 60.0
"""Deadline of one request, in seconds."""
RETRIES_S = (0.5, 2.0, 8.0)
"""Pauses in seconds before a request is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRole:
    """Implements `RolePolicy`.

    The server reads the conversation's messages, not their tokens, with pictures as data URLs; its reply is encoded
    with the run's tokenizer and cut if it has more tokens than there is room for. It is sampled at the run's
    temperature with the seed of the turn, which a server may or may not honour.
    """

    api: ChatApi
    renderer: Renderer
    learns: bool = False

    def of(self, attempt: Attempt) -> ServedRole:
        """Return itself."""
        return self

    async def reply(
        self, task: Task, conversation: Conversation, params: SamplingParams, session: Session
    ) -> Completion:
        """Return the server's reply. Raises EngineError if there is none after some tries, and if tools are on offer,
        which this role cannot call; StoreError for a picture that the run's store does not have."""
        if conversation.tools:
            names = ", ".join(tool.name for tool in conversation.tools)
            raise EngineError(
                f"session {session} offers tools ({names}), but a role bound to 'api:' cannot call tools; bind it to "
                "'frozen:PATH', a local checkpoint, or give 'api:' a role without tools"
            )
        text = await self.api.complete(
            to_chat(conversation.messages, embed(find_pictures(self.renderer))),
            max_tokens=params.max_tokens,
            seed=params.seed,
            temperature=params.temperature,
            top_p=params.top_p,
        )
        return cut_completion(encode_scripted(reply_message(text), self.renderer), params.max_tokens)

    async def release(self, session: Session) -> None:
        """Do nothing: nothing is held."""

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()


def to_chat(messages: Sequence[Message], to_url: ToUrl) -> list[dict[str, Any]]:
    """Convert messages to the API's form; all but those of the system and the assistant come from the user."""
    return [
        {
            "role": message.role if message.role in ("system", "assistant") else "user",
            "content": write_content(message.content, to_url),
        }
        for message in messages
    ]


def cut_completion(completion: Completion, max_tokens: int) -> Completion:
    """Return the first `max_tokens` tokens, with the finish reason of a truncated completion."""
    if len(completion.token_ids) <= max_tokens:
        return completion
    return replace(
        completion,
        token_ids=completion.token_ids[:max_tokens],
        logprobs=completion.logprobs[:max_tokens],
        finish_reason=FinishReason.LENGTH,
    )
