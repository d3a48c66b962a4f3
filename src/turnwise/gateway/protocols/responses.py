"""`/v1/responses`: items instead of messages, and `previous_response_id`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.core.messages import Message, TextPart, ToolCall
from turnwise.gateway.protocols.answer import Answer
from turnwise.gateway.protocols.call import Call, Event, Reply, slice_text
from turnwise.gateway.protocols.chat import (
    join_names,
    read_choice,
    read_content,
    read_format,
    read_function_tools,
    read_written,
    write_tokens,
)
from turnwise.gateway.protocols.chat import write_refusal as write_chat_refusal
from turnwise.gateway.protocols.fields import EXTENSIONS, Fields, show, write_arguments
from turnwise.gateway.protocols.pictures import PictureReader
from turnwise.gateway.refusals import Refusal

_UNSUPPORTED = {
    "background": "wait for the answer, or stream it",
    "conversation": "use previous_response_id, or send the items",
    "prompt": "send the prompt's text",
    "top_logprobs": "the log-probability of the sampled token alone is known",
}
_LOGPROBS = "message.output_text.logprobs"


def read(body: Mapping[str, Any], pictures: PictureReader | None = None) -> Call:
    """See `Writer.read`."""
    fields = Fields(body, pictures=pictures)
    fields.forbid(_UNSUPPORTED | EXTENSIONS)
    tools = read_function_tools(fields, nested=False)
    choice, forced = read_choice(fields, tools)
    messages = _read_input(fields)
    if instructions := fields.text("instructions", ""):
        messages.insert(0, Message(role="system", content=(TextPart(text=instructions),)))
    return Call(
        body=body,
        model=fields.text("model"),
        messages=tuple(messages),
        tools=() if choice == "none" else tools,
        choice=choice,
        forced=forced,
        max_calls=None if fields.flag("parallel_tool_calls", True) else 1,
        previous=fields.text("previous_response_id", "") or None,
        schema=read_format(fields.object("text").object("format")),
        max_tokens=fields.integer("max_output_tokens", low=1),
        temperature=fields.number("temperature", low=0, high=2),
        top_p=fields.number("top_p", low=0, high=1),
        top_k=fields.top_k(),
        wants_stream=fields.flag("stream"),
        wants_logprobs=_LOGPROBS in fields.items("include"),
    )


def _read_input(fields: Fields) -> list[Message]:
    """Return the messages of the items. What the model wrote without a break is one assistant message."""
    value = fields.get("input")
    if isinstance(value, str):
        return [Message(role="user", content=(TextPart(text=value),))]
    if value is None:
        raise fields.refuse("input", "must be a text or a list of items, not nothing")
    messages: list[Message] = []
    parts: list[TextPart] = []
    calls: list[ToolCall] = []
    thoughts: list[str] = []

    def end_reply() -> None:
        if parts or calls or thoughts:
            messages.append(
                Message(
                    role="assistant",
                    content=tuple(parts),
                    reasoning="\n".join(thoughts) or None,
                    tool_calls=tuple(calls),
                )
            )
            parts.clear()
            calls.clear()
            thoughts.clear()

    for item in fields.objects("input"):
        kind = item.text("type", "message")
        if kind == "function_call":
            arguments = write_arguments(item.get("arguments"), item.name("arguments"))
            name = join_names(item.text("namespace", ""), item.text("name"))
            calls.append(ToolCall(id=item.text("call_id"), name=name, arguments=arguments))
        elif kind == "reasoning":
            thoughts += [part.text("text", "") for part in item.objects("content")]
        elif kind == "message" and item.get("role") == "assistant":
            parts += read_written(item)
        elif kind == "function_call_output":
            end_reply()
            content = read_content(item, "output")
            messages.append(Message(role="tool", content=content, tool_call_id=item.text("call_id")))
        elif kind == "message":
            end_reply()
            role = item.text("role")
            if role not in ("system", "developer", "user"):
                raise item.refuse("role", f"is {show(role)}; known are system, developer, user and assistant")
            messages.append(Message(role="user" if role == "user" else "system", content=read_content(item)))
        else:
            raise item.refuse("type", f"is {kind!r}; known are message, reasoning and function calls")
    end_reply()
    return messages


def write(call: Call, replies: Sequence[Reply], created: int) -> dict[str, Any]:
    """See `Writer.write`."""
    [reply] = replies
    is_cut = reply.finish == "length"
    usage = {
        "input_tokens": reply.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.num_known_tokens},
        "output_tokens": reply.num_sampled_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.num_prompt_tokens + reply.num_sampled_tokens,
    }
    return {
        **_head(call, reply, created),
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "output": _write_items(call, reply),
        "usage": usage,
    }


async def write_events(call: Call, answers: Sequence[Answer], created: int) -> AsyncIterator[Event]:
    """See `Writer.write_events`."""
    [answer] = answers
    count = index = 0

    def event(kind: str, **fields: Any) -> Event:
        nonlocal count
        count += 1
        return kind, {"type": kind, "sequence_number": count - 1, **fields}

    def place(item: Mapping[str, Any], events: Iterable[tuple[str, dict[str, Any]]]) -> list[Event]:
        return [event(kind, output_index=index, item_id=item["id"], **fields) for kind, fields in events]

    def open_item(item: Mapping[str, Any]) -> list[Event]:
        empty: dict[str, Any] = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        added = event("response.output_item.added", output_index=index, item={**item, **empty, "status": "in_progress"})
        return [added, *place(item, _write_start(item))]

    def close_item(item: Mapping[str, Any]) -> list[Event]:
        return [*place(item, _write_end(item)), event("response.output_item.done", output_index=index, item=item)]

    opened = {**_head(call, answer, created), "status": "in_progress", "incomplete_details": None}
    opened |= {"output": [], "usage": None}
    yield event("response.created", response=opened)
    yield event("response.in_progress", response=opened)
    item: dict[str, Any] | None = None
    text = ""
    async for piece in answer.read_pieces():
        begun = _write_thought(answer.id, "") if piece.is_thought else _write_text(answer.id, "")
        if item is None or item["id"] != begun["id"]:
            for each in () if item is None else close_item(_write_thought(answer.id, text)):
                yield each
            index, item, text = index + (item is not None), begun, ""
            for each in open_item(item):
                yield each
        text += piece.text
        [told] = place(item, [_write_delta(item, piece.text)])
        yield told
    reply = await answer.read_reply()
    for done in _write_items(call, reply)[index:]:
        fresh = [] if item is not None and item["id"] == done["id"] else open_item(done)
        for each in (*fresh, *close_item(done)):
            yield each
        index += 1
    whole = write(call, [reply], created)
    yield event(f"response.{whole['status']}", response=whole)


def _write_start(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the events before an item's text, without its place."""
    if item["type"] == "message":
        part = {**item["content"][0], "text": "", "logprobs": []}
        yield "response.content_part.added", {"content_index": 0, "part": part}


def _write_delta(item: Mapping[str, Any], text: str) -> tuple[str, dict[str, Any]]:
    """Return the event of some of an item's text."""
    if item["type"] == "reasoning":
        return "response.reasoning_text.delta", {"content_index": 0, "delta": text}
    return "response.output_text.delta", {"content_index": 0, "delta": text, "logprobs": []}


def _write_end(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the events that end an item; those of a call have its arguments."""
    if item["type"] == "function_call":
        for part in slice_text(item["arguments"]):
            yield "response.function_call_arguments.delta", {"delta": part}
        yield "response.function_call_arguments.done", {"arguments": item["arguments"], "name": item["name"]}
        return
    [part] = item["content"]
    if item["type"] == "reasoning":
        yield "response.reasoning_text.done", {"content_index": 0, "text": part["text"]}
        return
    yield "response.output_text.done", {"content_index": 0, "text": part["text"], "logprobs": part["logprobs"]}
    yield "response.content_part.done", {"content_index": 0, "part": part}


def write_refusal(refusal: Refusal) -> dict[str, Any]:
    """See `Writer.write_refusal`. The conversation is called `input` here."""
    is_input = (refusal.field or "").startswith("messages")
    return write_chat_refusal(replace(refusal, field="input") if is_input else refusal)


def write_failure(refusal: Refusal) -> Event:
    """See `Writer.write_failure`."""
    fields = {"message": str(refusal), "code": refusal.code, "param": refusal.field, "sequence_number": 0}
    return "error", {"type": "error", **fields}


def _head(call: Call, reply: Reply | Answer, created: int) -> dict[str, Any]:
    """Return what a response repeats of its request."""
    body = call.body
    return {
        "id": reply.id,
        "object": "response",
        "created_at": created,
        "model": call.model,
        "error": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": call.max_tokens,
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": call.max_calls is None,
        "previous_response_id": call.previous,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": bool(body.get("store", True)),
        "temperature": call.temperature,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": call.top_p,
        "truncation": body.get("truncation") or "disabled",
    }


def split_name(call: Call, name: str) -> dict[str, str]:
    """Return the name of a called tool as the request spells it: with its namespace, if it has one."""
    for tool in call.body.get("tools") or ():
        if tool.get("type") == "namespace":
            for inner in tool.get("tools") or ():
                if join_names(tool["name"], inner["name"]) == name:
                    return {"namespace": tool["name"], "name": inner["name"]}
    return {"name": name}


def _write_items(call: Call, reply: Reply) -> list[dict[str, Any]]:
    message = reply.message
    items = [_write_thought(reply.id, message.reasoning)] if message.reasoning else []
    if message.text or not message.tool_calls:
        logprobs = write_tokens(reply) if call.wants_logprobs else []
        status = "incomplete" if reply.finish == "length" else "completed"
        items.append(_write_text(reply.id, message.text, logprobs, status))
    for number, made in enumerate(message.tool_calls):
        items.append(
            {
                "id": f"fc_{_find_code(reply.id)}_{number}",
                "type": "function_call",
                "call_id": made.id,
                **split_name(call, made.name),
                "arguments": made.arguments,
                "status": "completed",
            }
        )
    return items


def _write_thought(reply_id: str, text: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}]
    return {"id": f"rs_{_find_code(reply_id)}", "type": "reasoning", "summary": [], "content": content}


def _write_text(reply_id: str, text: str, logprobs: Sequence[Any] = (), status: str = "in_progress") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}
    head = {"id": f"msg_{_find_code(reply_id)}", "type": "message", "role": "assistant"}
    return {**head, "status": status, "content": [part]}


def _find_code(reply_id: str) -> str:
    """Return what the ids of a reply's items have in common."""
    return reply_id.partition("_")[2]
