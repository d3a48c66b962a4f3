"""Replies that are told while they are sampled: what clients see, and when."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import EngineError
from turnwise.core.messages import Message, ToolCall, reply_message
from turnwise.core.protocols import Receive
from turnwise.core.types import Completion, IntArray, SamplingParams, Session
from turnwise.engines.scripted import ScriptedEngine
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.sampling import Limits, SamplingRule
from turnwise.gateway.server import GatewayServer
from turnwise.gateway.session import Policy
from turnwise.gateway.settled import find_streaming
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer

QUESTION: Any = {"role": "user", "content": "Who wrote it ?"}
TOOL: Any = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
CALL = ToolCall(id="call_0", name="search", arguments='{"query": "Blue Lantern"}')
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {"messages": [QUESTION]},
    "/v1/messages": {"messages": [QUESTION], "max_tokens": 100},
    "/v1/responses": {"input": [QUESTION]},
}


@cache
def build_tokenizer() -> PreTrainedTokenizerBase:
    texts = ["Mira Tolen wrote Blue Lantern.", "Who wrote it ? I think."] * 40
    return train_tokenizer(texts, vocab_size=400, special_tokens=QWEN3_SPECIAL_TOKENS)


class Stepping(ScriptedEngine):
    """Samples one token each time that it is let to, and fails after so many (None: never)."""

    fails_after: int | None = None

    def __init__(self, renderer: ChatRenderer, script: Sequence[Message | str]) -> None:
        super().__init__(renderer, script)
        self.steps = asyncio.Semaphore(0)

    async def stream(
        self, prompt_ids: IntArray, params: SamplingParams, *, session: Session, receive: Receive
    ) -> Completion:
        completion = await self.generate(prompt_ids, params, session=session)
        for count, token in enumerate(completion.token_ids.tolist()):
            if count == self.fails_after:
                raise EngineError("the worker ended")
            await self.steps.acquire()
            receive([token])
        return completion

    def let_go(self, count: int = 1000) -> None:
        """Let it sample so many tokens more."""
        for _ in range(count):
            self.steps.release()


@asynccontextmanager
async def served(*script: Message | str) -> AsyncIterator[tuple[Stepping, Gateway, httpx.AsyncClient]]:
    tokenizer = build_tokenizer()
    renderer = ChatRenderer(tokenizer)
    engine = Stepping(renderer, script)
    policy = Policy(
        engine=engine,
        renderer=renderer,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
        decode=lambda ids: str(tokenizer.decode(list(ids))),
        streaming=find_streaming(renderer, tokenizer),
    )
    gateway = Gateway(policy, Limits(max_context=1000, max_reply_tokens=100), SamplingRule(), is_open=True)
    server = GatewayServer(gateway)
    url = await server.start()
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            yield engine, gateway, client
    finally:
        await server.close()


async def read_events(answer: httpx.Response) -> AsyncIterator[Any]:
    async for line in answer.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def find_text(event: Any) -> str:
    """The text that an event of any protocol tells."""
    if "choices" in event:
        delta = event["choices"][0]["delta"] if event["choices"] else {}
        return str(delta.get("content") or "")
    if str(event.get("type", "")).startswith("response.output_text.delta"):
        return str(event["delta"])
    delta = event.get("delta")
    return str(delta.get("text", "")) if isinstance(delta, dict) else ""


@pytest.mark.parametrize("path", BODIES)
def test_text_arrives_while_the_reply_is_sampled(path: str) -> None:
    async def scene() -> str:
        async with served("Mira Tolen wrote it.") as (engine, _, client):
            body = {"model": "policy", "stream": True, **BODIES[path]}
            engine.let_go(3)
            async with client.stream("POST", path, json=body) as answer:
                events, text = read_events(answer), ""
                while not text:
                    text += find_text(await anext(events))
                assert len(text) < len("Mira Tolen wrote it.")  # the rest is not sampled yet
                engine.let_go()
                async for event in events:
                    text += find_text(event)
                return text

    assert asyncio.run(scene()) == "Mira Tolen wrote it."


def test_a_streamed_reply_is_received_and_continued() -> None:
    async def scene() -> Any:
        said = reply_message("Let me see.", reasoning="I think.", tool_calls=(CALL,))
        async with served(said, "Mira Tolen.") as (engine, gateway, client):
            engine.let_go()
            body: Any = {"model": "policy", "stream": True, "messages": [QUESTION], "tools": [TOOL]}
            thought = text = ""
            calls: list[Any] = []
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                async for event in read_events(answer):
                    delta = event["choices"][0]["delta"]
                    thought += delta.get("reasoning_content") or ""
                    text += delta.get("content") or ""
                    calls += delta.get("tool_calls") or []
            arguments = "".join(call["function"]["arguments"] for call in calls)
            made = {"id": calls[0]["id"], "type": "function", "function": {"name": "search", "arguments": arguments}}
            body["messages"] += [
                {"role": "assistant", "content": text, "tool_calls": [made]},
                {"role": "tool", "tool_call_id": made["id"], "content": "Mira Tolen"},
            ]
            engine.let_go()
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                last = "".join([find_text(event) async for event in read_events(answer)])
            counts = gateway.count()
            [session] = gateway.sessions.values()
            return thought, text, json.loads(arguments), last, counts["continued"], session.undelivered

    assert asyncio.run(scene()) == (
        "I think.",
        "Let me see.",
        {"query": "Blue Lantern"},
        "Mira Tolen.",
        1,
        [],
    )


def test_a_client_that_hangs_up_has_not_received_and_gets_all_of_it_again() -> None:
    async def scene() -> Any:
        async with served("Mira Tolen wrote it.") as (engine, gateway, client):
            body = {"model": "policy", "stream": True, "messages": [QUESTION]}
            engine.let_go(3)
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                await anext(read_events(answer))
            engine.let_go()
            [session] = gateway.sessions.values()
            await asyncio.wait(session.tasks)
            lost = len(session.undelivered)
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                text = "".join([find_text(event) async for event in read_events(answer)])
            return lost, text, len(engine.requests), len(session.undelivered)

    assert asyncio.run(scene()) == (1, "Mira Tolen wrote it.", 1, 0)


@pytest.mark.parametrize("path", BODIES)
def test_a_failure_amid_a_stream_is_an_event_of_the_protocol(path: str) -> None:
    async def scene() -> tuple[Any, int]:
        async with served("Mira Tolen wrote it.") as (engine, gateway, client):
            engine.fails_after = 4
            engine.let_go()
            body = {"model": "policy", "stream": True, **BODIES[path]}
            async with client.stream("POST", path, json=body) as answer:
                assert answer.status_code == 200
                *_, last = [event async for event in read_events(answer)]
            [session] = gateway.sessions.values()
            return last, len(session.forest.replies)

    last, num_replies = asyncio.run(scene())
    assert "the worker ended" in (last.get("error") or last)["message"]
    assert num_replies == 0


def test_a_failure_before_the_first_text_has_a_status() -> None:
    async def scene() -> int:
        async with served("Mira Tolen wrote it.") as (engine, _, client):
            engine.fails_after = 0
            body = {"model": "policy", "stream": True, "messages": [QUESTION]}
            return (await client.post("/v1/chat/completions", json=body)).status_code

    assert asyncio.run(scene()) == 500


def test_a_stop_string_of_the_client_is_never_told() -> None:
    async def scene() -> str:
        async with served("Mira Tolen wrote it.") as (engine, _, client):
            engine.let_go()
            body = {"model": "policy", "stream": True, "messages": [QUESTION], "stop": ["wrote", "len x"]}
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                return "".join([find_text(event) async for event in read_events(answer)])

    assert asyncio.run(scene()) == "Mira Tolen "
