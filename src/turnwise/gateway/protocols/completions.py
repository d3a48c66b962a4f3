"""`/v1/completions`: text or token ids to complete, without messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from turnwise.gateway.protocols.answer import Answer
from turnwise.gateway.protocols.call import Call, Event, Reply
from turnwise.gateway.protocols.chat import MAX_REPLIES, MAX_STOPS, UNSUPPORTED, write_usage
from turnwise.gateway.protocols.chat import write_failure as write_failure
from turnwise.gateway.protocols.chat import write_refusal as write_refusal
from turnwise.gateway.protocols.fields import EXTENSIONS, Fields, show
from turnwise.gateway.protocols.pictures import PictureReader

_UNSUPPORTED = {key: UNSUPPORTED[key] for key in ("logit_bias", "frequency_penalty", "presence_penalty")} | {
    "suffix": "leave it out",
    "tools": "use /v1/chat/completions",
    "response_format": "use /v1/chat/completions",
}


def read(body: Mapping[str, Any], pictures: PictureReader | None = None) -> Call:
    """See `Writer.read`: a prompt has no pictures."""
    fields = Fields(body)
    fields.forbid(EXTENSIONS | _UNSUPPORTED)
    fields.neutral("repetition_penalty", 1)
    num_replies = fields.integer("n", low=1, high=MAX_REPLIES) or 1
    if (fields.integer("best_of", low=1) or num_replies) != num_replies:
        raise fields.refuse("best_of", "must be n: every reply is sampled once and returned")
    if (fields.integer("logprobs", low=0, high=5) or 0) > 1:
        raise fields.refuse("logprobs", "must be 0 or 1: the log-probability of the sampled token alone is known")
    return Call(
        body=body,
        model=fields.text("model"),
        messages=(),
        prompt=_read_prompt(fields),
        num_replies=num_replies,
        max_tokens=fields.integer("max_tokens", low=1) or 16,
        temperature=fields.number("temperature", low=0, high=2),
        top_p=fields.number("top_p", low=0, high=1),
        top_k=fields.top_k(),
        min_p=fields.number("min_p", low=0, high=1),
        seed=fields.integer("seed", low=-(2**63)),
        stop=fields.texts("stop", most=MAX_STOPS),
        wants_stream=fields.flag("stream"),
        wants_usage=fields.object("stream_options").flag("include_usage"),
        wants_logprobs=fields.get("logprobs") is not None,
    )


def _read_prompt(fields: Fields) -> str | tuple[int, ...]:
    value = fields.get("prompt")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(type(token) is int and 0 <= token < 2**31 for token in value):
        return tuple(value)
    raise fields.refuse("prompt", f"must be one text or one list of token ids, not {show(value)}")


def write(call: Call, replies: Sequence[Reply], created: int) -> dict[str, Any]:
    """See `Writer.write`."""
    choices = [_write_choice(call, at, reply, reply.message.text, reply.finish) for at, reply in enumerate(replies)]
    return {**_head(call, replies, created), "choices": choices, "usage": write_usage(replies)}


async def write_events(call: Call, answers: Sequence[Answer], created: int) -> AsyncIterator[Event]:
    """See `Writer.write_events`."""
    head = _head(call, answers, created)
    for at, answer in enumerate(answers):
        async for said in answer.read_pieces():
            yield None, {**head, "choices": [{"index": at, "text": said.text, "logprobs": None, "finish_reason": None}]}
        reply = await answer.read_reply()
        yield None, {**head, "choices": [_write_choice(call, at, reply, "", reply.finish)]}
    if call.wants_usage:
        yield None, {**head, "choices": [], "usage": write_usage([await answer.read_reply() for answer in answers])}
    yield None, "[DONE]"


def _head(call: Call, replies: Sequence[Reply | Answer], created: int) -> dict[str, Any]:
    return {"id": replies[0].id, "object": "text_completion", "created": created, "model": call.model}


def _write_choice(call: Call, at: int, reply: Reply, text: str, finish: str) -> dict[str, Any]:
    offsets, offset = [], 0
    for token in reply.tokens:
        offsets.append(offset)
        offset += len(token.text)
    logprobs = {
        "tokens": [token.text for token in reply.tokens],
        "token_logprobs": [token.logprob for token in reply.tokens],
        "top_logprobs": None,
        "text_offset": offsets,
    }
    return {
        "index": at,
        "text": text,
        "logprobs": logprobs if call.wants_logprobs else None,
        "finish_reason": finish,
    }
