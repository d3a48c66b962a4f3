"""A role that a server speaks for calls no tool."""

import asyncio

import pytest

from turnwise.core.errors import EngineError
from turnwise.core.types import SamplingParams, Session, ToolSpec
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
