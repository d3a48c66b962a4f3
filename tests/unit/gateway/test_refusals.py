"""What each protocol says to bad input: in its own form, in one line, and without harm to what was there before."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from fuzzed_requests import CUSTOM, FLAT, Recorder, check_captured
from gateway_world import QUESTION, TOOLS, serve

from turnwise.gateway.http import MAX_BODY_BYTES
from turnwise.gateway.sampling import Limits

BODIES: Any = {
    "chat/completions": {"model": "policy", "messages": [QUESTION], "tools": TOOLS},
    "completions": {"model": "policy", "prompt": "17 + 18"},
    "responses": {"model": "policy", "input": "17 + 18", "tools": FLAT},
    "messages": {"model": "policy", "messages": [QUESTION], "tools": CUSTOM, "max_tokens": 50},
}
LONG = "17 + 18 " * 2000
LONGER: Any = {"completions": {"prompt": LONG}, "responses": {"input": LONG}}
BAD: Any = {"type": "object", "properties": {"a": {"type": "integr"}}}
BAD_TOOLS: Any = {
    "chat/completions": [{"type": "function", "function": {"name": "add", "parameters": BAD}}],
    "responses": [{"type": "function", "name": "add", "parameters": BAD}],
    "messages": [{"name": "add", "input_schema": BAD}],
}


def check_form(path: str, answer: httpx.Response, status: int, kind: str, field: str | None = None) -> str:
    """Check that a refusal has the form of its protocol; returns what it says."""
    assert answer.status_code == status, answer.text
    value = answer.json()
    error = value["error"]
    assert error["type"] == kind
    if path == "messages":
        assert (value["type"], set(error)) == ("error", {"type", "message", "code"})
        assert field is None or error["message"].startswith(f"{field}: ")
    else:
        assert set(value) == {"error"}
        assert error["param"] == field
    assert "\n" not in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    return str(error["message"])


@pytest.mark.parametrize("path", BODIES)
def test_a_body_that_cannot_be_read_is_refused_in_the_protocols_form(path: str) -> None:
    client = serve().open()
    whole = json.dumps(BODIES[path]).encode()
    padded = whole[:-1] + b', "padding": "' + b"x" * MAX_BODY_BYTES + b'"}'
    large = whole[:-1] + b', "padding": "' + b"x" * (MAX_BODY_BYTES - len(whole) - 20) + b'"}'

    async def post(content: bytes) -> httpx.Response:
        return await client.post(f"/v1/{path}", content=content)

    async def play() -> None:
        bad = "invalid_request_error"
        told = check_form(path, await post(whole.replace(b"policy", b"p\xfflicy")), 400, bad)
        assert "no UTF-8: byte" in told
        assert "no JSON" in check_form(path, await post(whole[:-1]), 400, bad)
        too_large = "request_too_large" if path == "messages" else bad
        assert "more than 10,485,760 bytes" in check_form(path, await post(padded), 413, too_large)
        assert (await post(large)).status_code == 200  # 10 MB of JSON that means the same

    asyncio.run(play())


@pytest.mark.parametrize("path", BODIES)
def test_keys_and_sessions_are_told_apart_in_the_protocols_form(path: str) -> None:
    served = serve()
    mine, other = served.gateway.open(name="mine"), served.gateway.open(name="other")
    denied, barred = (
        ("authentication_error", "permission_error") if path == "messages" else ("invalid_request_error",) * 2
    )
    unknown = "not_found_error" if path == "messages" else "invalid_request_error"

    async def post(key: str, place: str) -> httpx.Response:
        return await served.client(key).post(f"{place}/v1/{path}", json=BODIES[path])

    async def play() -> None:
        check_form(path, await post("guess", mine.path), 401, denied)
        check_form(path, await post(mine.key, other.path), 403, barred)
        check_form(path, await post(mine.key, "/sessions/third"), 404, unknown)
        assert (await post(mine.key, mine.path)).status_code == 200
        await served.gateway.end("mine")
        assert "open another" in check_form(path, await post(mine.key, mine.path), 403, barred)

    asyncio.run(play())


@pytest.mark.parametrize("path", BODIES)
def test_prompts_and_tools_that_cannot_be_are_refused_in_the_protocols_form(path: str) -> None:
    client = serve(limits=Limits(max_context=900, max_reply_tokens=50)).open()

    async def post(change: Any) -> httpx.Response:
        return await client.post(f"/v1/{path}", json={**BODIES[path], **change})

    async def play() -> None:
        longer = LONGER.get(path, {"messages": [{"role": "user", "content": LONG}]})
        field = {"completions": "prompt", "responses": "input"}.get(path, "messages")
        told = check_form(path, await post(longer), 400, "invalid_request_error", field)
        assert "leaves no room in 900" in told
        told = (
            check_form(path, await post({"model": "gpt"}), 404, "not_found_error", "model")
            if (path == "messages")
            else check_form(path, await post({"model": "gpt"}), 404, "invalid_request_error", "model")
        )
        assert "ask for 'policy'" in told
        if path in BAD_TOOLS:
            where = {"chat/completions": "tools[0].function.parameters", "messages": "tools[0].input_schema"}
            field = where.get(path, "tools[0].parameters")
            told = check_form(path, await post({"tools": BAD_TOOLS[path]}), 400, "invalid_request_error", field)
            assert "is no JSON schema: at ['properties']['a']['type']" in told

    asyncio.run(play())


def test_ids_of_other_sessions_continue_nothing() -> None:
    served = serve()
    mine, other = served.open(), served.open()

    async def play() -> None:
        first = (await other.post("/v1/responses", json=BODIES["responses"])).json()
        said = (await other.post("/v1/messages", json=BODIES["messages"])).json()
        for issued in (first["id"], "resp_0"):
            body = {**BODIES["responses"], "previous_response_id": issued}
            told = check_form(
                "responses",
                await mine.post("/v1/responses", json=body),
                404,
                "invalid_request_error",
                "previous_response_id",
            )
            assert issued in told
        for issued in (said["id"], "msg_0"):
            thread = {"type": "continue", "previous_message_id": issued}
            answer = await mine.post("/v1/messages", json={**BODIES["messages"], "thread": thread})
            check_form("messages", answer, 404, "not_found_error", "thread.previous_message_id")

    asyncio.run(play())


def test_two_writers_to_one_session_keep_their_conversations_and_every_token() -> None:
    served = serve(wrap=Recorder)
    engine: Any = served.policy.engine
    access = served.gateway.open()

    async def write(start: int) -> None:
        client = served.client(access.key, access.path)
        messages: list[Any] = [{"role": "user", "content": f"What is {start} + 1 ?"}]
        for _ in range(2):
            answer = await client.post(
                "/v1/chat/completions", json={**BODIES["chat/completions"], "messages": messages}
            )
            message = answer.json()["choices"][0]["message"]
            if message.get("tool_calls"):
                assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": start, "b": 1}
                result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": str(start + 1)}
                messages += [message, result]
        assert message["content"] == f"<answer> {start + 1} </answer>"

    async def play() -> None:
        await asyncio.gather(*(write(start) for start in range(10, 18)), write(10))

    asyncio.run(play())
    session = served.gateway.sessions[access.name]
    # Nine openings, two of them with the same question, and nine continuations: none is lost, none is mixed up.
    assert (session.forest.num_replies, session.counts["continued"], session.undelivered) == (18, 9, [])
    assert check_captured(engine, session) > 0
