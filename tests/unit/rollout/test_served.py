"""A role that a server speaks for calls no tool."""

import asyncio

import numpy as np
import pytest
from chat_server import chat_server

from turnwise.core.errors import EngineError
from turnwise.core.messages import ImagePart, Message, TextPart, without_pixels
from turnwise.core.types import Completion, ConversationOpening, Prompt, SamplingParams, Session, ToolSpec, to_ids
from turnwise.pictures.pixels import to_part
from turnwise.pictures.read import read_picture
from turnwise.pictures.store import PictureStore
from turnwise.rendering.images import PictureRenderer
from turnwise.rollout.conversation import Conversation
from turnwise.rollout.served import ServedRole
from turnwise.testing import build_tiny_renderer, build_tiny_tokenizer, make_task
from turnwise.tools.chat_api import ChatApi

SEARCH = ToolSpec(name="search", description="Search.", parameters={"type": "object", "properties": {}})


def test_a_role_with_tools_is_told_what_to_bind_it_to() -> None:
    renderer = build_tiny_renderer(build_tiny_tokenizer(["who"]))
    api = ChatApi("http://127.0.0.1:9/v1", "m", max_tokens=4, seed=0)  # never asked
    role = ServedRole(api=api, renderer=renderer)
    reply = role.reply(
        make_task(),
        Conversation(renderer=renderer, tools=(SEARCH,)),
        SamplingParams(max_tokens=4),
        Session(group="g", name="a"),
    )
    with pytest.raises(EngineError, match=r"offers tools \(search\), .*; bind it to 'frozen:PATH'"):
        asyncio.run(reply)


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

        async def ask() -> Completion:
            session = Session(group="g", name="a")
            try:
                return await role.reply(make_task(), conversation, SamplingParams(max_tokens=4), session)
            finally:
                await role.close()

        completion = asyncio.run(ask())
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
