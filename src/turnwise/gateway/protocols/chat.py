"""`/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from turnwise.core.messages import ImagePart, Message, Part, TextPart, ToolCall, ToolSpec
from turnwise.gateway.protocols.answer import Answer
from turnwise.gateway.protocols.call import Call, Choice, Event, Reply, slice_text
from turnwise.gateway.protocols.fields import EXTENSIONS, Fields, check_schema, read_tools, show, write_arguments
from turnwise.gateway.protocols.images import IMAGE_PARTS, read_image
from turnwise.gateway.protocols.pictures import PictureReader
from turnwise.gateway.refusals import Refusal

UNSUPPORTED = {
    "functions": "use tools",
    "function_call": "use tool_choice",
    "audio": "the policy reads and writes text",
    "logit_bias": "leave it out",
    "frequency_penalty": "leave it out: it changes the policy's distribution",
    "presence_penalty": "leave it out: it changes the policy's distribution",
    "prediction": "leave it out",
    "web_search_options": "offer a tool that searches",
    "top_logprobs": "the log-probability of the sampled token alone is known; send logprobs without it",
}
FUNCTIONS = "tools of type 'function' are supported"
REMEDIES = {
    "web_search": 'disable it in the client (Codex: web_search = "disabled"), or offer a function that searches',
    "custom": "offer a function with a text as its argument",
}
MAX_REPLIES, MAX_STOPS = 64, 16
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def read(body: Mapping[str, Any], pictures: PictureReader | None = None) -> Call:
    """See `Writer.read`."""
    fields = Fields(body, pictures=pictures)
    fields.forbid(UNSUPPORTED | EXTENSIONS)
    fields.neutral("repetition_penalty", 1)
    if any(kind != "text" for kind in fields.items("modalities")):
        raise fields.refuse("modalities", "the policy reads and writes text")
    tools = read_function_tools(fields, nested=True)
    choice, forced = read_choice(fields, tools)
    short, long = (fields.integer(key, low=1) for key in ("max_tokens", "max_completion_tokens"))
    return Call(
        body=body,
        model=fields.text("model"),
        messages=tuple(_read_message(each) for each in fields.objects("messages")),
        tools=() if choice == "none" else tools,
        choice=choice,
        forced=forced,
        max_calls=None if fields.flag("parallel_tool_calls", True) else 1,
        schema=read_format(fields.object("response_format")),
        num_replies=fields.integer("n", low=1, high=MAX_REPLIES) or 1,
        max_tokens=long or short,
        temperature=fields.number("temperature", low=0, high=2),
        top_p=fields.number("top_p", low=0, high=1),
        top_k=fields.top_k(),
        min_p=fields.number("min_p", low=0, high=1),
        seed=fields.integer("seed", low=-(2**63)),
        stop=fields.texts("stop", most=MAX_STOPS),
        wants_stream=fields.flag("stream"),
        wants_usage=fields.object("stream_options").flag("include_usage"),
        wants_logprobs=fields.flag("logprobs"),
    )


def read_function_tools(fields: Fields, *, nested: bool) -> tuple[ToolSpec, ...]:
    """Return the tools of a request; `nested` if each has its own object "function". Others have namespaces, whose
    tools are called by both names."""
    tools, names = [], []
    for each, space in _list_tools(fields, has_spaces=not nested):
        if (kind := each.text("type", "function")) != "function":
            raise each.refuse("type", f"is {kind!r}, which runs at its maker; {REMEDIES.get(kind, FUNCTIONS)}")
        of = each.object("function") if nested else each
        parameters = of.object("parameters").value or {"type": "object", "properties": {}}
        name = join_names(space, of.text("name"))
        tools.append(ToolSpec(name=name, description=of.text("description", ""), parameters=parameters))
        names.append(of.name("name").removesuffix(".name"))
    return read_tools(tools, names, "parameters")


def _list_tools(fields: Fields, *, has_spaces: bool) -> Iterator[tuple[Fields, str]]:
    """Return the tools with their namespaces, "" for none."""
    for each in fields.objects("tools"):
        if has_spaces and each.get("type") == "namespace":
            yield from ((inner, each.text("name")) for inner in each.objects("tools"))
        else:
            yield each, ""


def join_names(space: str, name: str) -> str:
    """Return the name by which the policy calls a tool of a namespace; "" is none."""
    return f"{space}__{name}" if space else name


def read_choice(fields: Fields, tools: Sequence[ToolSpec]) -> tuple[Choice, str | None]:
    """Return whether a call is wanted, and the tool that is."""
    value = fields.get("tool_choice")
    if value is None or value == "auto":
        return "auto", None
    if value == "none":
        return "none", None
    if not tools:
        raise fields.refuse("tool_choice", "needs tools")
    if value == "required":
        return "required", None
    chosen = fields.object("tool_choice") if isinstance(value, dict) else None
    if chosen is None or chosen.get("type") != "function":
        raise fields.refuse("tool_choice", f"must be auto, none, required or a function, not {show(value)}")
    name = chosen.object("function").get("name") or chosen.get("name")
    if name not in [tool.name for tool in tools]:
        raise fields.refuse("tool_choice", f"names {show(name)}, which is none of the tools")
    return "required", str(name)


def read_format(fields: Fields) -> Mapping[str, Any] | None:
    """Return the JSON schema of the reply's text; None for free text."""
    kind = fields.text("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise fields.refuse("type", f"must be text, json_object or json_schema, not {kind!r}")
    inner = fields.object("json_schema") if fields.get("json_schema") is not None else fields
    schema = inner.object("schema").value
    check_schema(schema, inner.name("schema"))
    return schema


def read_content(fields: Fields, key: str = "content") -> tuple[Part, ...]:
    """Return content given as a text or in parts. Raises Refusal for parts that the policy does not read."""
    return tuple(_read_image(part) or _read_text(part) for part in _list_parts(fields, key))


def read_written(fields: Fields) -> tuple[TextPart, ...]:
    """Return the content of a reply, as `read_content` does. Raises Refusal for parts that are not text."""
    return tuple(map(_read_text, _list_parts(fields, "content")))


def _list_parts(fields: Fields, key: str) -> Iterator[Fields]:
    value = fields.get(key)
    if isinstance(value, str):
        return iter([Fields({"text": value}, fields.name(key))])
    return fields.objects(key)


def _read_image(part: Fields) -> ImagePart | None:
    return read_image(part) if part.text("type", "text") in IMAGE_PARTS else None


def _read_text(part: Fields) -> TextPart:
    kind = part.text("type", "text")
    if kind not in _TEXT_PARTS:
        raise part.refuse("type", f"is {kind!r}; the policy reads text")
    return TextPart(text=part.text("refusal" if kind == "refusal" else "text"))


def _read_message(fields: Fields) -> Message:
    role = fields.text("role")
    if role in ("system", "developer", "user"):
        return Message(role="user" if role == "user" else "system", content=read_content(fields))
    if role == "tool":
        return Message(role="tool", content=read_content(fields), tool_call_id=fields.text("tool_call_id"))
    if role != "assistant":
        raise fields.refuse("role", f"is {show(role)}; known are system, developer, user, assistant and tool")
    fields.forbid({"function_call": "use tool_calls"})
    calls = []
    for each in fields.objects("tool_calls"):
        of = each.object("function")
        arguments = write_arguments(of.get("arguments"), of.name("arguments"))
        calls.append(ToolCall(id=each.text("id"), name=of.text("name"), arguments=arguments))
    thought = next((fields.text(key) for key in ("reasoning_content", "reasoning") if fields.get(key)), None)
    return Message(role="assistant", content=read_written(fields), reasoning=thought, tool_calls=tuple(calls))


def write(call: Call, replies: Sequence[Reply], created: int) -> dict[str, Any]:
    """See `Writer.write`."""
    choices = [
        {
            "index": at,
            "message": _write_message(reply),
            "logprobs": _write_logprobs(call, reply),
            "finish_reason": reply.finish,
        }
        for at, reply in enumerate(replies)
    ]
    return {**_head(call, replies, created, "chat.completion"), "choices": choices, "usage": write_usage(replies)}


async def write_events(call: Call, answers: Sequence[Answer], created: int) -> AsyncIterator[Event]:
    """See `Writer.write_events`."""
    head = _head(call, answers, created, "chat.completion.chunk")
    usage = {"usage": None} if call.wants_usage else {}

    def chunk(at: int, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> Event:
        choice = {"index": at, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return None, {**head, "choices": [choice], **usage}

    for at, answer in enumerate(answers):
        logprobs = _write_logprobs(call, await answer.read_reply()) if call.wants_logprobs else None
        yield chunk(at, {"role": "assistant", "content": ""}, logprobs=logprobs)
        async for said in answer.read_pieces():
            yield chunk(at, {"reasoning_content" if said.is_thought else "content": said.text})
        reply = await answer.read_reply()
        for number, made in enumerate(reply.message.tool_calls):
            opened = {"index": number, **_write_call(made), "function": {"name": made.name, "arguments": ""}}
            yield chunk(at, {"tool_calls": [opened]})
            for piece in slice_text(made.arguments):
                yield chunk(at, {"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
        yield chunk(at, {}, reply.finish)
    if call.wants_usage:
        yield None, {**head, "choices": [], "usage": write_usage([await answer.read_reply() for answer in answers])}
    yield None, "[DONE]"


def write_refusal(refusal: Refusal) -> dict[str, Any]:
    """See `Writer.write_refusal`."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    kind = "rate_limit_error" if refusal.status == 429 else kind
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.field, "code": refusal.code}}


def write_failure(refusal: Refusal) -> Event:
    """See `Writer.write_failure`."""
    return "error", write_refusal(refusal)


def write_usage(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the token counts; the prompt of several replies counts once."""
    prompt, sampled = replies[0].num_prompt_tokens, sum(reply.num_sampled_tokens for reply in replies)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "prompt_tokens_details": {"cached_tokens": replies[0].num_known_tokens},
    }


def _head(call: Call, replies: Sequence[Reply | Answer], created: int, kind: str) -> dict[str, Any]:
    return {"id": replies[0].id, "object": kind, "created": created, "model": call.model}


def _write_message(reply: Reply) -> dict[str, Any]:
    message = reply.message
    written: dict[str, Any] = {
        "role": "assistant",
        "content": None if message.tool_calls and not message.text else message.text,
        "refusal": None,
    }
    if message.reasoning is not None:
        written["reasoning_content"] = message.reasoning
    if message.tool_calls:
        written["tool_calls"] = [_write_call(call) for call in message.tool_calls]
    return written


def _write_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _write_logprobs(call: Call, reply: Reply) -> dict[str, Any] | None:
    return {"content": write_tokens(reply), "refusal": None} if call.wants_logprobs else None


def write_tokens(reply: Reply) -> list[dict[str, Any]]:
    """Return the sampled tokens with their log-probabilities. A token that is part of a character has no bytes."""
    return [
        {
            "token": token.text,
            "logprob": token.logprob,
            "bytes": None if "\ufffd" in token.text else list(token.text.encode("utf-8", "surrogatepass")),
            "top_logprobs": [],
        }
        for token in reply.tokens
    ]
