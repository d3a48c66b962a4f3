"""`/v1/messages`, with threads: a request may send only what is new after the message that it names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.core.messages import Message, Part, TextPart, ToolCall, ToolSpec
from turnwise.gateway.arguments import read_object
from turnwise.gateway.protocols.answer import Answer
from turnwise.gateway.protocols.call import Call, Choice, Event, Reply, slice_text
from turnwise.gateway.protocols.chat import MAX_STOPS, read_content, read_format, read_written
from turnwise.gateway.protocols.fields import EXTENSIONS, Fields, read_tools, show, write_arguments
from turnwise.gateway.protocols.images import IMAGE_PARTS, read_image
from turnwise.gateway.protocols.pictures import PictureReader
from turnwise.gateway.refusals import Refusal

_UNSUPPORTED = {
    "mcp_servers": "offer their tools as tools",
    "container": "offer tools that run in your own",
    "compaction": "send a conversation that fits",
}
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_KINDS |= {413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}


def read(body: Mapping[str, Any], pictures: PictureReader | None = None) -> Call:
    """See `Writer.read`."""
    return replace(read_counted(body, pictures), max_tokens=_need(Fields(body).integer("max_tokens", low=1)))


def read_counted(body: Mapping[str, Any], pictures: PictureReader | None = None) -> Call:
    """Understand a request whose tokens are to be counted: as `read`, but it needs no `max_tokens`."""
    fields = Fields(body, pictures=pictures)
    fields.forbid(_UNSUPPORTED | EXTENSIONS)
    if fields.get("messages") is None:
        raise fields.refuse("messages", "must be a list, not nothing")
    tools = _read_tools(fields)
    choice, forced, max_calls = _read_choice(fields.object("tool_choice"), tools)
    messages = [message for each in fields.objects("messages") for message in _read_message(each)]
    system = read_content(fields, "system")
    if any(not isinstance(part, TextPart) or part.text for part in system):
        messages.insert(0, Message(role="system", content=system))
    return Call(
        body=body,
        model=fields.text("model"),
        messages=tuple(messages),
        tools=() if choice == "none" else tools,
        choice="auto" if choice == "none" else choice,
        forced=forced,
        max_calls=max_calls,
        previous=_read_thread(fields.object("thread")),
        keeps_tools=fields.get("tools") is None,
        schema=read_format(fields.object("output_config").object("format")),
        temperature=fields.number("temperature", low=0, high=1),
        top_p=fields.number("top_p", low=0, high=1),
        top_k=fields.top_k(),
        shows_thoughts=fields.object("thinking").text("type", "disabled") != "disabled",
        stop=fields.texts("stop_sequences", most=MAX_STOPS),
        wants_stream=fields.flag("stream"),
    )


def _need(value: int | None) -> int:
    if value is None:
        raise Refusal("must be an integer from 1, not nothing", field="max_tokens")
    return value


def _read_thread(fields: Fields) -> str | None:
    kind = fields.text("type", "create")
    if kind not in ("create", "continue"):
        raise fields.refuse("type", f"must be create or continue, not {kind!r}")
    return fields.text("previous_message_id") if kind == "continue" else None


def _read_tools(fields: Fields) -> tuple[ToolSpec, ...]:
    tools, names = [], []
    for each in fields.objects("tools"):
        if (kind := each.text("type", "custom")) != "custom":
            raise each.refuse("type", f"is {kind!r}; tools of type 'custom' are supported")
        schema = each.object("input_schema").value or {"type": "object", "properties": {}}
        tools.append(ToolSpec(name=each.text("name"), description=each.text("description", ""), parameters=schema))
        names.append(each.name("name").removesuffix(".name"))
    return read_tools(tools, names, "input_schema")


def _read_choice(fields: Fields, tools: Sequence[ToolSpec]) -> tuple[Choice, str | None, int | None]:
    kind = fields.text("type", "auto")
    max_calls = 1 if fields.flag("disable_parallel_tool_use") else None
    if kind not in ("auto", "any", "tool", "none"):
        raise fields.refuse("type", f"must be auto, any, tool or none, not {kind!r}")
    if kind in ("auto", "none"):
        return ("auto" if kind == "auto" else "none"), None, max_calls
    name = fields.text("name") if kind == "tool" else None
    if not tools or (name is not None and name not in {tool.name for tool in tools}):
        raise fields.refuse("name" if tools else "type", f"names {show(name)}, which is none of the tools")
    return "required", name, max_calls


def _read_message(fields: Fields) -> list[Message]:
    role = fields.text("role")
    if role == "assistant":
        return [_read_assistant(fields)]
    if role not in ("user", "system"):
        raise fields.refuse("role", f"is {show(role)}; known are user, assistant and system")
    if not isinstance(fields.get("content"), list):
        return [Message(role="user" if role == "user" else "system", content=read_content(fields))]
    results: list[Message] = []
    rest: list[Part] = []
    for block in fields.objects("content"):
        if block.get("type") == "tool_result":
            results.append(Message(role="tool", content=read_content(block), tool_call_id=block.text("tool_use_id")))
        elif (kind := block.text("type")) == "text":
            rest.append(TextPart(text=block.text("text")))
        elif kind in IMAGE_PARTS:
            rest.append(read_image(block))
        else:
            raise block.refuse("type", f"is {kind!r}; the policy reads text and tool results")
    said = Message(role="user" if role == "user" else "system", content=tuple(rest))
    return [*results, said] if rest or not results else results


def _read_assistant(fields: Fields) -> Message:
    if not isinstance(fields.get("content"), list):
        return Message(role="assistant", content=read_written(fields))
    parts, calls, thoughts = [], [], []
    for block in fields.objects("content"):
        kind = block.text("type")
        if kind == "text":
            parts.append(TextPart(text=block.text("text")))
        elif kind == "thinking":
            thoughts.append(block.text("thinking", ""))
        elif kind == "tool_use":
            arguments = write_arguments(block.object("input").value, block.name("input"))
            calls.append(ToolCall(id=block.text("id"), name=block.text("name"), arguments=arguments))
        else:
            raise block.refuse("type", f"is {kind!r}; known are text, thinking and tool_use")
    reasoning = "".join(thoughts) or None
    return Message(role="assistant", content=tuple(parts), reasoning=reasoning, tool_calls=tuple(calls))


def write(call: Call, replies: Sequence[Reply], created: int) -> dict[str, Any]:
    """See `Writer.write`."""
    [reply] = replies
    return {
        **_head(call, reply),
        "content": _write_blocks(call, reply),
        "stop_reason": _write_stop(reply),
        "stop_sequence": reply.stop_text,
        "usage": _write_usage(reply, reply.num_sampled_tokens),
    }


async def write_events(call: Call, answers: Sequence[Answer], created: int) -> AsyncIterator[Event]:
    """See `Writer.write_events`."""
    [answer] = answers

    def event(kind: str, **fields: Any) -> Event:
        return kind, {"type": kind, **fields}

    def delta(kind: str, **fields: Any) -> Event:
        return event("content_block_delta", index=index, delta={"type": kind, **fields})

    def close(is_thought: bool | None) -> list[Event]:
        if is_thought is None:
            return []
        signed = [delta("signature_delta", signature=answer.id)] if is_thought else []
        return [*signed, event("content_block_stop", index=index)]

    opened = {**_head(call, answer), "content": [], "stop_reason": None, "stop_sequence": None}
    yield event("message_start", message={**opened, "usage": _write_usage(answer, 0)})
    index, is_thought = -1, None
    async for piece in answer.read_pieces():
        if piece.is_thought and not call.shows_thoughts:
            continue
        kind = "thinking" if piece.is_thought else "text"
        if piece.is_thought is not is_thought:
            for each in close(is_thought):
                yield each
            index, is_thought = index + 1, piece.is_thought
            empty = {"thinking": "", "signature": ""} if is_thought else {"text": ""}
            yield event("content_block_start", index=index, content_block={"type": kind, **empty})
        yield delta(f"{kind}_delta", **{kind: piece.text})
    for each in close(is_thought):
        yield each
    reply = await answer.read_reply()
    for block in (block for block in _write_blocks(call, reply) if block["type"] == "tool_use"):
        index += 1
        yield event("content_block_start", index=index, content_block={**block, "input": {}})
        for part in slice_text(json.dumps(block["input"], ensure_ascii=False)):
            yield delta("input_json_delta", partial_json=part)
        yield event("content_block_stop", index=index)
    stop = {"stop_reason": _write_stop(reply), "stop_sequence": reply.stop_text}
    yield event("message_delta", delta=stop, usage=_write_usage(reply, reply.num_sampled_tokens))
    yield event("message_stop")


def write_refusal(refusal: Refusal) -> dict[str, Any]:
    """See `Writer.write_refusal`."""
    kind = _KINDS.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": str(refusal), "code": refusal.code}}


def write_failure(refusal: Refusal) -> Event:
    """See `Writer.write_failure`."""
    return "error", write_refusal(refusal)


def _head(call: Call, reply: Reply | Answer) -> dict[str, Any]:
    return {"id": reply.id, "type": "message", "role": "assistant", "model": call.model}


def _write_blocks(call: Call, reply: Reply) -> list[dict[str, Any]]:
    message = reply.message
    blocks: list[dict[str, Any]] = []
    if message.reasoning and call.shows_thoughts:  # programs that have not asked read the first block as the text
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": reply.id})
    if message.text:
        blocks.append({"type": "text", "text": message.text})
    for made in message.tool_calls:
        blocks.append(
            {"type": "tool_use", "id": made.id, "name": made.name, "input": read_object(made.arguments) or {}}
        )
    return blocks


def _write_stop(reply: Reply) -> str:
    if reply.stop_text is not None:
        return "stop_sequence"
    return {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[reply.finish]


def _write_usage(reply: Reply | Answer, num_sampled: int) -> dict[str, int]:
    return {
        "input_tokens": reply.num_prompt_tokens - reply.num_known_tokens,
        "output_tokens": num_sampled,
        "cache_read_input_tokens": reply.num_known_tokens,
        "cache_creation_input_tokens": 0,
    }
