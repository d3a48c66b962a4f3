"""A role that a server speaks for: what it is sent, and how its reply is written."""

import asyncio
import json

import numpy as np
import pytest
from chat_server import chat_server

from turnwise.core.errors import EngineError
from turnwise.core.messages import (
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    reply_message,
    text_message,
    without_pixels,
)
from turnwise.core.types import Completion, ConversationOpening, Prompt, SamplingParams, Session, ToolSpec, to_ids
from turnwise.pictures.pixels import to_part
from turnwise.pictures.read import read_picture
from turnwise.pictures.store import PictureStore
from turnwise.rendering.images import PictureRenderer
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.served import ServedRole, Usage
from turnwise.testing import build_tiny_renderer, build_tiny_tokenizer, make_task
from turnwise.tools.chat_api import ChatApi

SEARCH = ToolSpec(name="search", description="Search.", parameters={"type": "object", "properties": {}})


def test_a_served_model_calls_the_tools_on_offer() -> None:
    renderer = build_tiny_renderer(build_tiny_tokenizer(["who", "amber"]))
    conversation = Conversation(renderer=renderer, tools=(SEARCH,))
    before = ToolCall(id="call_0", name="search", arguments='{"query": "who"}')
    conversation.openings.append(
        ConversationOpening(
            name="main",
            messages=(
                text_message("user", "who"),
                reply_message("", tool_calls=(before,)),
                text_message("tool", "amber", tool_call_id="call_0", name="search"),
                text_message("tool", "not a call"),
            ),
        )
    )
    with chat_server(lambda content: (200, chat_call("search", {"query": "amber"}))) as (url, requests):
        role = ServedRole(api=ChatApi(url, "m", max_tokens=9, seed=0), renderer=renderer)
        completion = asyncio.run(ask_once(role, conversation))
    [sent] = requests
    assert sent["tools"] == [
        {"type": "function", "function": {"name": "search", "description": "Search.", "parameters": SEARCH.parameters}}
    ]
    assert sent["messages"] == [
        {"role": "user", "content": "who"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_0",
                    "type": "function",
                    "function": {"name": "search", "arguments": '{"query": "who"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "amber"},
        {"role": "user", "content": "not a call"},
    ]
    [call] = renderer.parse(to_ids([]), completion.token_ids, (SEARCH,)).tool_calls
    assert (call.name, json.loads(call.arguments)) == ("search", {"query": "amber"})
    assert role.usage == Usage(num_requests=1, num_uncounted=0, prompt_tokens=11, reply_tokens=3)


def test_a_reply_that_the_renderer_cannot_write_is_an_error_that_says_so() -> None:
    renderer = build_tiny_renderer(build_tiny_tokenizer(["who"]))
    conversation = Conversation(renderer=renderer, tools=(SEARCH,))
    conversation.openings.append(ConversationOpening(name="main", messages=(text_message("user", "who"),)))
    with chat_server(lambda content: (200, chat_call("buy", {}))) as (url, _):
        role = ServedRole(api=ChatApi(url, "m", max_tokens=9, seed=0), renderer=renderer)
        with pytest.raises(EngineError, match=r"session g/a: the reply of .* cannot be written: .*buy"):
            asyncio.run(ask_once(role, conversation))


def chat_call(name: str, arguments: dict[str, str]) -> str:
    """The body of an answer that calls a tool."""
    call = {"id": "x", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": 11, "completion_tokens": 3}
    return json.dumps({"choices": [{"index": 0, "message": message}], "usage": usage})


async def ask_once(role: ServedRole, conversation: Conversation) -> Completion:
    try:
        session = Session(group="g", name="a")
        return await role.reply(make_task(), conversation, SamplingParams(max_tokens=9), session)
    finally:
        await role.close()


def test_a_server_sees_the_pictures_of_the_run() -> None:
    tokenizer = build_tiny_tokenizer(["who reads this"])
    inner, store = build_tiny_renderer(tokenizer), PictureStore(None)
    part = to_part(np.full((2, 4, 3), 9, np.uint8))
    store.put(part)
    renderer = PictureRenderer(inner, NoLayout(), store)
    conversation = Conversation(renderer=renderer)
    # Servers refuse pictures in the answer of a tool, so that too comes from the user.
    message = Message(role="tool", content=(TextPart(text="who reads "), without_pixels(shown(part)).images[0]))
    conversation.openings.append(ConversationOpening(name="main", messages=(message,)))
    with chat_server(lambda content: "this") as (url, requests):
        role = ServedRole(api=ChatApi(url, "m", max_tokens=4, seed=0), renderer=renderer)
        completion = asyncio.run(ask_once(role, conversation))
    assert inner.parse(to_ids([]), completion.token_ids).text == "this"
    [sent] = requests[0]["messages"]
    assert sent["role"] == "user"
    assert sent["content"][0] == {"type": "text", "text": "who reads "}
    assert read_picture(sent["content"][1]) == part


def shown(part: ImagePart) -> Message:
    return Message(role="user", content=(part,))


class NoLayout:
    """Lays nothing out: the server reads messages."""

    marker, marker_id = "none", -1

    def lay_out(self, part: ImagePart) -> Prompt:
        raise AssertionError
