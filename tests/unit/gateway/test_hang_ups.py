"""Clients that hang up: at every event of a stream, and while a reply is sampled; and what a retry gets."""

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest
from gateway_world import QUESTION, TOOLS, Served, serve

from turnwise.core.protocols import Engine
from turnwise.core.types import Completion, IntArray, SamplingParams
from turnwise.core.types import Session as EngineSession
from turnwise.gateway.gateway import Access
from turnwise.gateway.http import Application
from turnwise.gateway.server import GatewayServer

BODY: Any = {"model": "policy", "messages": [QUESTION], "tools": TOOLS}


class Gate:
    """An engine that waits for `opened` before it samples."""

    version = 0

    def __init__(self, engine: Engine) -> None:
        self.opened, self.begun = asyncio.Event(), asyncio.Event()
        self._engine = engine

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: EngineSession) -> Completion:
        self.begun.set()
        await self.opened.wait()
        return await self._engine.generate(prompt_ids, params, session=session)

    async def release(self, session: EngineSession) -> None:
        await self._engine.release(session)

    async def close(self) -> None:
        await self._engine.close()


async def ask(served: Served, access: Access, body: Any, *, leaves_after: int | None = None, retry: int = 0) -> int:
    """Post a chat request; hang up after so many parts of the answer (None: never). Returns the number of parts."""
    sent = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    left, num_parts = asyncio.Event(), 0
    if leaves_after == 0:
        left.set()

    async def receive() -> Any:
        if sent:
            return sent.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal num_parts
        if message.get("body"):
            num_parts += 1
            if num_parts == leaves_after:
                left.set()

    headers = {"host": "127.0.0.1", "authorization": f"Bearer {access.key}", "x-stainless-retry-count": str(retry)}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
    }
    await Application(served.gateway)(scope, receive, send)
    return num_parts


def test_a_client_may_hang_up_at_every_event() -> None:
    async def play(leaves_after: int | None) -> tuple[int, bool, int]:
        served = serve()
        access = served.gateway.open()
        num_parts = await ask(served, access, {**BODY, "stream": True}, leaves_after=leaves_after)
        session = served.gateway.sessions[access.name]
        await asyncio.gather(*session._open)
        is_delivered = session.undelivered == []
        await ask(served, access, {**BODY, "stream": True})  # the client asks again, without saying so
        assert session.undelivered == []
        return num_parts, is_delivered, len(served.engine.requests)

    num_parts, is_delivered, num_sampled = asyncio.run(play(None))
    assert (is_delivered, num_sampled) == (True, 2)  # an answered request that comes again is sampled again
    for at in range(num_parts):
        assert asyncio.run(play(at)) == (at, False, 1)  # and one that was not received gets its answer


@pytest.mark.parametrize("says_so", [True, False])
def test_a_retry_gets_the_reply_that_is_being_sampled(says_so: bool) -> None:
    async def play() -> None:
        served = serve(wrap=Gate)
        engine: Any = served.policy.engine
        access = served.gateway.open()
        session = served.gateway.sessions[access.name]
        first = asyncio.ensure_future(ask(served, access, BODY, leaves_after=None if says_so else 0))
        await engine.begun.wait()
        if not says_so:
            await first
        again = asyncio.ensure_future(ask(served, access, BODY, retry=1 if says_so else 0))
        while session.counts["coalesced"] == 0:
            await asyncio.sleep(0)
        engine.opened.set()
        await asyncio.gather(first, again)
        assert (len(session.forest.replies), session.counts["coalesced"]) == (1, 1)
        assert session.undelivered == []

    asyncio.run(play())


def test_the_same_request_twice_at_once_is_sampled_twice() -> None:
    async def play() -> None:
        served = serve()
        access = served.gateway.open()
        await asyncio.gather(ask(served, access, BODY), ask(served, access, BODY))
        assert len(served.gateway.sessions[access.name].forest.replies) == 2

    asyncio.run(play())


def test_a_session_that_ends_refuses_what_is_being_sampled() -> None:
    async def play() -> None:
        served = serve(wrap=Gate)
        engine: Any = served.policy.engine
        access = served.gateway.open()
        waiting = asyncio.ensure_future(served.client(access.key).post("/v1/chat/completions", json=BODY))
        await engine.begun.wait()
        await served.gateway.end(access.name)
        answer = await waiting
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "session_over")

    asyncio.run(play())


def test_the_server_listens_on_this_machine_and_notices_who_leaves() -> None:
    async def play() -> None:
        served = serve(wrap=Gate)
        engine: Any = served.policy.engine
        server = GatewayServer(served.gateway)
        url = await server.start()
        access = served.gateway.open()
        headers = {"authorization": f"Bearer {access.key}"}
        session = served.gateway.sessions[access.name]
        async with httpx.AsyncClient(base_url=url + access.path, headers=headers, timeout=120) as client:
            leaving = asyncio.ensure_future(client.post("/v1/chat/completions", json=BODY))
            await engine.begun.wait()
            leaving.cancel()
            [exchange] = session._exchanges.values()
            async with asyncio.timeout(120):
                while exchange.num_listeners:
                    await asyncio.sleep(0.001)
            engine.opened.set()
            streamed = await client.post("/v1/chat/completions", json={**BODY, "stream": True})
            assert streamed.text.endswith("data: [DONE]\n\n")
            [connection] = server._server.server_state.connections
            accepted = connection.transport.get_extra_info("socket")
            # Else the body of an answer waits 40 ms for the client to acknowledge its head.
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            whole = await client.post("/v1/chat/completions", json=BODY)
            assert whole.json()["choices"][0]["finish_reason"] == "tool_calls"
        assert session.undelivered == []
        assert session.counts["coalesced"] == 1
        await server.close()
        await server.close()

    asyncio.run(play())
