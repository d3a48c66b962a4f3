"""A role played by a model behind an OpenAI-style API: text in, text out, and no log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from turnwise.core.errors import EngineError, RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import (
    Completion,
    FinishReason,
    Message,
    SamplingParams,
    Session,
    Task,
    ToolSpec,
    reply_message,
)
from turnwise.pictures.chat_parts import ToUrl, embed, write_content
from turnwise.rendering.images import find_pictures
from turnwise.rollout.attempt import Attempt
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.policies import encode_scripted
from turnwise.tools.chat_api import ChatApi, ChatReply

REPLY_S = 60.0
"""Deadline of one request, in seconds."""
RETRIES_S = (0.5, 2.0, 8.0)
"""Pauses in seconds before a request is sent again."""


@dataclass(slots=True, kw_only=True)
class Usage:
    """What the replies of a served model took."""

    num_requests: int = 0
    """Replies received; attempts that failed do not count."""
    num_uncounted: int = 0
    """Replies for which the server gave no number of tokens."""
    prompt_tokens: int = 0
    reply_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRole:
    """Implements `RolePolicy`.

    The server reads the conversation's messages, not their tokens, with pictures as data URLs; its reply is encoded
    with the run's tokenizer and cut if it has more tokens than there is room for. Tools on offer are those of the
    request, and its calls are encoded as the run's renderer writes calls. It is sampled at the run's temperature with
    the seed of the turn, which a server may or may not honour.
    """

    api: ChatApi
    renderer: Renderer
    learns: bool = False
    usage: Usage = field(default_factory=Usage)
    """Counts what its replies take."""

    def of(self, attempt: Attempt) -> ServedRole:
        """Return itself."""
        return self

    async def reply(
        self, task: Task, conversation: Conversation, params: SamplingParams, session: Session
    ) -> Completion:
        """Return the server's reply. Raises EngineError if there is none after some tries, or one that the renderer
        cannot write (two calls where it has room for one); StoreError for a picture that the run's store does not
        have."""
        tools = conversation.tools
        answer = await self.api.reply(
            to_chat(conversation.messages, embed(find_pictures(self.renderer)), with_calls=bool(tools)),
            max_tokens=params.max_tokens,
            seed=params.seed,
            temperature=params.temperature,
            top_p=params.top_p,
            **({"tools": [describe_tool(tool) for tool in tools]} if tools else {}),
        )
        self._count(answer)
        said = reply_message(answer.text, tool_calls=answer.calls if tools else ())
        try:
            return cut_completion(encode_scripted(said, self.renderer), params.max_tokens)
        except RenderError as error:
            raise EngineError(f"session {session}: the reply of {self.api.url} cannot be written: {error}") from error

    def _count(self, answer: ChatReply) -> None:
        self.usage.num_requests += 1
        self.usage.num_uncounted += not answer.prompt_tokens
        self.usage.prompt_tokens += answer.prompt_tokens
        self.usage.reply_tokens += answer.reply_tokens

    async def release(self, session: Session) -> None:
        """Do nothing: nothing is held."""

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()


def to_chat(messages: Sequence[Message], to_url: ToUrl, *, with_calls: bool = False) -> list[dict[str, Any]]:
    """Convert messages to the API's form. `with_calls` keeps calls and their answers as such; without, and where a
    message answers no call, all but those of the system and the assistant come from the user."""
    return [_to_chat_message(message, to_url, with_calls=with_calls) for message in messages]


def _to_chat_message(message: Message, to_url: ToUrl, *, with_calls: bool) -> dict[str, Any]:
    content = write_content(message.content, to_url)
    if with_calls and message.role == "tool" and message.tool_call_id is not None:
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
    written = {"role": message.role if message.role in ("system", "assistant") else "user", "content": content}
    if with_calls and message.tool_calls:
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return written


def describe_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool in the API's form."""
    described = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": described}


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
