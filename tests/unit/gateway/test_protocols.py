"""Each protocol reads requests into the same messages, and writes replies with every field that some client needs."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.messages import Message, TextPart, ToolCall, reply_message, text_message
from turnwise.gateway.protocols import chat, completions, messages, responses
from turnwise.gateway.protocols.answer import Answer, Piece
from turnwise.gateway.protocols.call import Call, Event, Reply, TokenText
from turnwise.gateway.refusals import Refusal

PROTOCOLS: Any = {"chat": chat, "completions": completions, "messages": messages, "responses": responses}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CALL = ToolCall(id="call_1", name="add", arguments='{"a": 17}')
FUNCTION = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
CONVERSATION = (
    text_message("system", "Use the tool."),
    text_message("user", "What is 17 + 17?"),
    reply_message("I add.", reasoning="Adding is right.", tool_calls=(CALL,)),
    text_message("tool", "34", tool_call_id="call_1"),
)
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17}'}}
CHAT: Any = {
    "model": "policy",
    "messages": [
        {"role": "developer", "content": "Use the tool."},
        {"role": "user", "content": [{"type": "text", "text": "What is 17 + 17?"}]},
        {"role": "assistant", "content": "I add.", "reasoning_content": "Adding is right.", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "content": "34", "tool_call_id": "call_1"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
}
MESSAGES: Any = {
    "model": "policy",
    "max_tokens": 100,
    "thinking": {"type": "adaptive"},
    "system": [{"type": "text", "text": "Use the tool.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "What is 17 + 17?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Adding is right.", "signature": "s"},
                {"type": "text", "text": "I add."},
                {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 17}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "34"}]},
    ],
    "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
}
RESPONSES: Any = {
    "model": "policy",
    "instructions": "Use the tool.",
    "input": [
        {"role": "user", "content": "What is 17 + 17?"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Adding is right."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I add."}]},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a": 17}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "34"},
    ],
    "tools": [{"type": "function", **FUNCTION, "strict": True}],
}
BODIES: Any = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
SPACE: Any = {
    "type": "namespace",
    "name": "files",
    "description": "Files.",
    "tools": [{"type": "function", **FUNCTION}],
}
TEXT: Any = {"completions": {"model": "policy", "prompt": "Once"}}


@pytest.mark.parametrize("name", BODIES)
def test_every_protocol_reads_the_same_conversation(name: str) -> None:
    call = PROTOCOLS[name].read(BODIES[name])
    assert call.messages == CONVERSATION
    [tool] = call.tools
    assert (tool.name, tool.description, tool.parameters) == ("add", "Adds.", SCHEMA)
    assert (call.model, call.choice, call.num_replies, call.wants_stream) == ("policy", "auto", 1, False)


def test_results_of_tools_come_before_what_the_user_said_beside_them() -> None:
    blocks = [
        {"type": "text", "text": "And now?"},
        {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "34"}]},
    ]
    body = {**MESSAGES, "messages": [*MESSAGES["messages"][:2], {"role": "user", "content": blocks}]}
    assert [(m.role, m.text) for m in messages.read(body).messages[-2:]] == [("tool", "34"), ("user", "And now?")]


@pytest.mark.parametrize(
    ("name", "change", "field", "value"),
    [
        ("chat", {"max_completion_tokens": 7, "max_tokens": 9}, "max_tokens", 7),
        ("chat", {"stop": "X"}, "stop", ("X",)),
        ("chat", {"n": 3}, "num_replies", 3),
        ("chat", {"parallel_tool_calls": False}, "max_calls", 1),
        ("chat", {"tool_choice": "none"}, "tools", ()),
        ("chat", {"tool_choice": {"type": "function", "function": {"name": "add"}}}, "forced", "add"),
        ("chat", {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, "schema", SCHEMA),
        ("chat", {"stream_options": {"include_usage": True}}, "wants_usage", True),
        ("chat", {"logprobs": True, "metadata": {"x": 1}, "service_tier": "auto"}, "wants_logprobs", True),
        ("messages", {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, "choice", "required"),
        ("messages", {"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "previous", "msg_1"),
        ("messages", {"thread": {"type": "create"}}, "previous", None),
        ("messages", {"stop_sequences": ["X", "Y"]}, "stop", ("X", "Y")),
        ("responses", {"previous_response_id": "resp_1"}, "previous", "resp_1"),
        ("responses", {"tool_choice": {"type": "function", "name": "add"}}, "forced", "add"),
        ("responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}, "schema", SCHEMA),
        ("responses", {"include": ["message.output_text.logprobs"]}, "wants_logprobs", True),
        ("completions", {"prompt": [[1, 2]]}, "prompt", (1, 2)),
        ("completions", {"prompt": ["Once"], "max_tokens": None}, "max_tokens", 16),
    ],
)
def test_what_a_request_asks_for_is_read(name, change, field, value) -> None:
    assert getattr(PROTOCOLS[name].read({**(BODIES | TEXT)[name], **change}), field) == value


def said(*parts: object, role: str = "user") -> dict:
    return {"messages": [{"role": role, "content": list(parts)}]}


@pytest.mark.parametrize(
    ("name", "change", "field", "problem"),
    [
        ("chat", said({"type": "image_url", "image_url": {}}), "messages[0].content[0].type", "'image_url'"),
        ("chat", {"messages": [{"role": "critic", "content": ""}]}, "messages[0].role", "'critic'"),
        ("chat", {"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id", "nothing"),
        ("chat", {"messages": "hi"}, "messages", "must be a list"),
        ("chat", {"messages": ["hi"]}, "messages[0]", "must be an object"),
        ("chat", {"model": None}, "model", "must be a string"),
        ("chat", {"n": 0}, "n", "from 1 to 64"),
        ("chat", {"temperature": "hot"}, "temperature", "'hot'"),
        ("chat", {"top_logprobs": 5}, "top_logprobs", "the sampled token alone"),
        ("chat", {"logit_bias": {"1": 5}}, "logit_bias", "not supported"),
        ("chat", {"tools": [{"type": "custom"}]}, "tools[0].type", "'custom'"),
        ("chat", {"tools": [{"function": {"name": "a b"}}]}, "tools[0].function.name", "without spaces"),
        ("chat", {"tools": CHAT["tools"] * 2}, "tools[1].function.name", "two tools"),
        (
            "chat",
            {"tools": [{"function": {"name": "a", "parameters": {"type": "objekt"}}}]},
            "tools[0].function.parameters",
            "at ['type'] 'objekt'",
        ),
        ("chat", {"tool_choice": {"type": "function", "function": {"name": "sub"}}}, "tool_choice", "'sub'"),
        ("chat", {"tool_choice": "required", "tools": []}, "tool_choice", "needs tools"),
        ("chat", {"response_format": {"type": "grammar"}}, "response_format.type", "'grammar'"),
        ("chat", {"modalities": ["text", "audio"]}, "modalities", "text"),
        ("messages", {"max_tokens": None}, "max_tokens", "nothing"),
        ("messages", {"messages": None}, "messages", "nothing"),
        ("messages", said({"type": "image", "source": {}}), "messages[0].content[0].type", "'image'"),
        ("messages", said({"type": "redacted_thinking"}, role="assistant"), "messages[0].content[0].type", "redacted"),
        ("messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type", "'bash_20250124'"),
        ("messages", {"tools": [{"name": "a", "input_schema": {"type": 7}}]}, "tools[0].input_schema", "type"),
        ("messages", {"tool_choice": {"type": "tool", "name": "sub"}}, "tool_choice.name", "'sub'"),
        ("messages", {"thread": {"type": "continue"}}, "thread.previous_message_id", "nothing"),
        ("messages", {"mcp_servers": [{}]}, "mcp_servers", "not supported"),
        ("responses", {"input": None}, "input", "nothing"),
        ("responses", {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "'item_reference'"),
        (
            "responses",
            {"tools": [{"type": "web_search"}]},
            "tools[0].type",
            "'web_search', which runs at its maker; dis",
        ),
        ("responses", {"tools": [SPACE, SPACE]}, "tools[1].tools[0].name", "two tools are called 'files__add'"),
        ("responses", {"tools": [{**SPACE, "name": 7}]}, "tools[0].name", "must be a string"),
        ("chat", {"tools": [SPACE]}, "tools[0].type", "'namespace'"),
        ("responses", {"background": True}, "background", "not supported"),
        ("completions", {"prompt": ["a", "b"]}, "prompt", "one text"),
        ("completions", {"prompt": ""}, "prompt", "one text"),
        ("completions", {"best_of": 2}, "best_of", "must be n"),
        ("completions", {"suffix": "x"}, "suffix", "not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name, change, field, problem) -> None:
    with pytest.raises(Refusal) as caught:
        PROTOCOLS[name].read({**(BODIES | TEXT)[name], **change})
    assert (caught.value.field, caught.value.status) == (field, 400)
    assert problem in str(caught.value)
    written = PROTOCOLS[name].write_refusal(caught.value)
    assert field in written["error"]["message"]
    assert written["error"]["type"] == "invalid_request_error"


def reply(message: Message, **fields) -> Reply:
    fields = {"finish": "tool_calls" if message.tool_calls else "stop", **fields}
    return Reply(id="x_1", message=message, num_prompt_tokens=10, num_known_tokens=4, num_sampled_tokens=3, **fields)


FULL = reply(CONVERSATION[2], tokens=(TokenText(text="é", logprob=-0.5), TokenText(text="\ufffd", logprob=-1.0)))


def test_a_chat_reply_has_what_clients_need() -> None:
    call = chat.read({**CHAT, "logprobs": True})
    written = chat.write(call, [FULL], 7)
    [choice] = written["choices"]
    assert (written["id"], written["object"], written["created"], written["model"]) == (
        "x_1",
        "chat.completion",
        7,
        "policy",
    )
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "tool_calls", "assistant")
    assert choice["message"]["tool_calls"] == [CHAT_CALL]
    assert choice["logprobs"]["content"][0] == {"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": []}
    assert choice["logprobs"]["content"][1]["bytes"] is None
    assert written["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    assert (
        chat.write(call, [reply(reply_message("", tool_calls=(CALL,)))], 7)["choices"][0]["message"]["content"] is None
    )
    assert chat.write(call, [reply(reply_message(""))], 7)["choices"][0]["message"]["content"] == ""


def test_a_message_has_what_clients_need() -> None:
    written = messages.write(messages.read(MESSAGES), [FULL], 7)
    assert written == {
        "id": "x_1",
        "type": "message",
        "role": "assistant",
        "model": "policy",
        "content": [
            {"type": "thinking", "thinking": "Adding is right.", "signature": "x_1"},
            {"type": "text", "text": "I add."},
            {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 17}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 6,
            "output_tokens": 3,
            "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 0,
        },
    }
    cut = reply(reply_message("a"), finish="length")
    assert messages.write(messages.read(MESSAGES), [cut], 7)["stop_reason"] == "max_tokens"
    stopped = reply(reply_message("a"), stop_text="X")
    assert messages.write(messages.read(MESSAGES), [stopped], 7)["stop_sequence"] == "X"


def test_a_response_has_what_clients_need() -> None:
    written = responses.write(responses.read(RESPONSES), [FULL], 7)
    assert (written["id"], written["created_at"], written["status"], written["object"]) == (
        "x_1",
        7,
        "completed",
        "response",
    )
    assert [item["type"] for item in written["output"]] == ["reasoning", "message", "function_call"]
    assert written["output"][1]["content"][0]["annotations"] == []
    assert written["output"][2]["call_id"] == "call_1"
    cut = responses.write(responses.read(RESPONSES), [reply(reply_message("a"), finish="length")], 7)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_tools_of_a_namespace_are_called_by_both_names() -> None:
    body = {**RESPONSES, "tools": [*RESPONSES["tools"], SPACE]}
    call = responses.read(body)
    assert [tool.name for tool in call.tools] == ["add", "files__add"]
    made = ToolCall(id="call_2", name="files__add", arguments="{}")
    [plain, spaced] = responses.write(call, [reply(reply_message("", tool_calls=(CALL, made)))], 7)["output"]
    assert ("namespace" in plain, plain["name"]) == (False, "add")
    assert (spaced["namespace"], spaced["name"]) == ("files", "add")
    echoed = responses.read({**body, "input": [*RESPONSES["input"][:1], plain, spaced]}).messages[-1]
    assert [each.name for each in echoed.tool_calls] == ["add", "files__add"]


def list_events(writer: Any, call: Call, *replies: Reply, told: Sequence[int] = ()) -> list[Event]:
    """The events of a stream. `told` are lengths of the pieces in which a reply's reasoning and text come before its
    end; what is left of them comes with it."""

    async def read() -> list[Event]:
        answers = []
        for done in replies:
            answers.append(answer := Answer(id=done.id, num_prompt_tokens=10, num_known_tokens=4))
            answer.add(list(split(done.message, told)))
        reading = asyncio.ensure_future(collect(writer.write_events(call, answers, 7)))
        await asyncio.sleep(0)
        for answer, done in zip(answers, replies, strict=True):
            answer.finish(done)
        return await reading

    return asyncio.run(read())


async def collect(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


def split(message: Message, told: Sequence[int]) -> Iterator[Piece]:
    """Return the beginning of a reply in pieces of the given lengths; text only after the whole reasoning."""
    whole = [(True, message.reasoning or ""), (False, message.text)]
    lengths = list(told)
    for is_thought, text in whole:
        while text and lengths:
            size = lengths.pop(0)
            yield Piece(text=text[:size], is_thought=is_thought)
            text = text[size:]


PIECES = st.lists(st.integers(1, 300), max_size=6)
REPLIES = st.builds(
    lambda text, thought, objects: reply_message(
        text,
        reasoning=thought or None,
        tool_calls=tuple(
            ToolCall(id=f"call_{at}", name="add", arguments=json.dumps(each)) for at, each in enumerate(objects)
        ),
    ),
    st.text(max_size=900),
    st.text(max_size=20),
    st.lists(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=500), max_size=3), max_size=3),
)


@given(REPLIES, PIECES)
def test_chat_chunks_make_the_whole_message(message, told) -> None:
    call = chat.read({**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    *chunks, usage, done = [data for _, data in list_events(chat, call, reply(message), told=told)]
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    text = thought = ""
    calls: dict[int, dict] = {}
    last = 0
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        [choice] = chunk["choices"]
        delta = choice["delta"]
        text += delta.get("content") or ""
        thought += delta.get("reasoning_content") or ""
        for part in delta.get("tool_calls", []):
            assert part["index"] >= last  # one call is finished before the next begins
            last = part["index"]
            made = calls.setdefault(part["index"], {"id": part.get("id"), "arguments": ""})
            made["arguments"] += part["function"]["arguments"]
    whole = chat.write(call, [reply(message)], 7)["choices"][0]
    assert (text, thought or None) == (message.text, message.reasoning)
    assert [(made["id"], made["arguments"]) for made in calls.values()] == [
        (made.id, made.arguments) for made in message.tool_calls
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]


@given(REPLIES, PIECES)
def test_message_events_make_the_whole_message(message, told) -> None:
    call = messages.read({**MESSAGES, "stream": True})
    events = [data for _, data in list_events(messages, call, reply(message), told=told)]
    assert [event["type"] for event in events[:1] + events[-2:]] == ["message_start", "message_delta", "message_stop"]
    assert events[0]["message"]["usage"]["input_tokens"] == 6
    blocks: list[dict] = []
    texts: list[str] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
            texts.append("")
        if event["type"] == "content_block_delta":
            for key in ("text", "thinking", "partial_json"):
                texts[event["index"]] += event["delta"].get(key, "")
            blocks[event["index"]] |= {k: v for k, v in event["delta"].items() if k == "signature"}
    for block, text in zip(blocks, texts, strict=True):
        key = {"tool_use": "input"}.get(block["type"], block["type"])
        block[key] = json.loads(text) if key == "input" else text
    assert blocks == messages.write(call, [reply(message)], 7)["content"]


@pytest.mark.parametrize("asked", [{}, {"thinking": {"type": "disabled"}}])
def test_thoughts_are_for_clients_that_ask_for_them(asked: Any) -> None:
    call = messages.read({**{key: value for key, value in MESSAGES.items() if key != "thinking"}, **asked})
    assert [block["type"] for block in messages.write(call, [FULL], 7)["content"]] == ["text", "tool_use"]
    started = [data for kind, data in list_events(messages, call, FULL) if kind == "content_block_start"]
    assert [(data["index"], data["content_block"]["type"]) for data in started] == [(0, "text"), (1, "tool_use")]


@given(REPLIES, PIECES)
def test_response_events_make_the_whole_response(message, told) -> None:
    call = responses.read({**RESPONSES, "stream": True})
    events = list_events(responses, call, reply(message), told=told)
    assert [name for name, _ in events] == [data["type"] for _, data in events]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert events[0][0] == "response.created"
    assert events[-1][1]["response"] == responses.write(call, [reply(message)], 7)
    done = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert done == events[-1][1]["response"]["output"]
    for index, item in enumerate(done):
        deltas = "".join(d["delta"] for n, d in events if str(n).endswith(".delta") and d["output_index"] == index)
        assert deltas == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])


def test_completions_write_text_and_the_tokens_of_it() -> None:
    call = completions.read({"model": "policy", "prompt": "Once", "logprobs": 1, "n": 2, "stream": True})
    done = reply(reply_message("é."), tokens=(TokenText(text="é", logprob=-0.5), TokenText(text=".", logprob=-1.0)))
    written = completions.write(call, [done, done], 7)
    assert [choice["index"] for choice in written["choices"]] == [0, 1]
    assert written["choices"][0]["text"] == "é."
    assert written["choices"][0]["logprobs"]["text_offset"] == [0, 1]
    assert written["usage"]["completion_tokens"] == 6
    assert [data for _, data in list_events(completions, call, done, done)][-1] == "[DONE]"


def test_content_may_be_missing() -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": None}, {"role": "user", "content": []}]}
    assert [message.content for message in chat.read(body).messages] == [(), ()]
    assert chat.read({**CHAT, "messages": [{"role": "user", "content": ""}]}).messages[0].content == (
        TextPart(text=""),
    )
