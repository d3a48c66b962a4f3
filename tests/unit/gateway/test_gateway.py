"""A gateway as its clients see it: one conversation by every protocol, keys, limits, rewards, bad input."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fuzzed_requests import Answer, send
from gateway_world import QUESTION, TOOLS, serve

from turnwise.core.errors import EngineError
from turnwise.core.messages import ToolCall, reply_message
from turnwise.core.types import Scored
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.http import MAX_BODY_BYTES, Application
from turnwise.gateway.sampling import Limits, SamplingRule

CHAT: Any = {"model": "policy", "messages": [QUESTION], "tools": TOOLS}


async def post(client: httpx.AsyncClient, path: str, body: Any, **options: Any) -> Any:
    answer = await client.post(path, json=body, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def chat_loop(client: httpx.AsyncClient) -> str:
    messages: list[Any] = [QUESTION]
    while True:
        answer = await post(client, "/v1/chat/completions", {**CHAT, "messages": messages})
        message = answer["choices"][0]["message"]
        if not message.get("tool_calls"):
            return message["content"]
        # As many clients do: other spelling, no reasoning, null for an empty text.
        calls = []
        for call in message["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            written = json.dumps(arguments, indent=2, sort_keys=True)
            calls.append({**call, "function": {**call["function"], "arguments": written}})
            result = str(arguments["a"] + arguments["b"])
        messages = [*messages, {"role": "assistant", "content": None, "tool_calls": calls}]
        messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": [{"type": "text", "text": result}]})


async def messages_loop(client: httpx.AsyncClient) -> str:
    schema = TOOLS[0]["function"]
    tool = {"name": "add", "description": schema["description"], "input_schema": schema["parameters"]}
    body: Any = {"model": "policy", "max_tokens": 100, "messages": [QUESTION], "tools": [tool]}
    body["thinking"] = {"type": "enabled", "budget_tokens": 50}
    first = await post(client, "/v1/messages", body)
    assert first["stop_reason"] == "tool_use"
    assert [block["type"] for block in first["content"]] == ["thinking", "tool_use"]
    call = first["content"][1]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": str(call["input"]["a"] + call["input"]["b"])}
    new = {"role": "user", "content": [result]}
    echo = {"role": "assistant", "content": first["content"]}
    second = await post(client, "/v1/messages", {**body, "messages": [QUESTION, echo, new]})
    named = {"type": "continue", "previous_message_id": first["id"]}
    body.pop("tools")  # a thread keeps them
    third = await post(client, "/v1/messages", {**body, "messages": [new], "thread": named})
    assert third["content"][-1] == second["content"][-1]
    return second["content"][-1]["text"]


async def responses_loop(client: httpx.AsyncClient) -> str:
    body = {"model": "policy", "input": QUESTION["content"], "tools": [{"type": "function", **TOOLS[0]["function"]}]}
    first = await post(client, "/v1/responses", body)
    call = first["output"][-1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "35"}
    items = [{"role": "user", "content": QUESTION["content"]}, *first["output"], result]
    second = await post(client, "/v1/responses", {**body, "input": items})
    third = await post(client, "/v1/responses", {**body, "input": [result], "previous_response_id": first["id"]})
    texts = [answer["output"][-1]["content"][0]["text"] for answer in (second, third)]
    assert texts[0] == texts[1]
    return texts[0]


@pytest.mark.parametrize("loop", [chat_loop, messages_loop, responses_loop])
def test_a_tool_loop_continues_on_stored_tokens(loop) -> None:
    served = serve()
    access = served.gateway.open()
    answer = asyncio.run(loop(served.client(access.key, access.path)))
    assert answer == "<answer> 35 </answer>"
    session = served.gateway.sessions[access.name]
    first, second = (request[1].tolist() for request in served.engine.requests[:2])
    node, following = (node.record for node in session.forest.replies[:2])
    sampled = node.completion.token_ids.tolist()
    assert second[: len(first) + len(sampled)] == [*first, *sampled]
    assert following.prompt.parent == session.forest.replies[0].index
    assert second[len(first) + len(sampled) :] == following.prompt.context_ids.tolist()
    assert session.counts["opened"] == session.counts["continued"] == 1
    # The thread and the previous response ask the same again, beside the first answer.
    assert session.counts["branched"] == len(served.engine.requests) - 2


def test_every_protocol_gives_the_same_prompts() -> None:
    prompts = []
    for loop in (chat_loop, messages_loop, responses_loop):
        served = serve()
        asyncio.run(loop(served.open()))
        prompts.append([request[1].tolist() for request in served.engine.requests[:2]])
    assert prompts[0] == prompts[1] == prompts[2]


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses", "completions"])
def test_a_stream_ends_with_its_last_event(path) -> None:
    asked: Any = {"responses": {"input": "17 + 18"}, "completions": {"prompt": "17 + 18"}}
    body = {"model": "policy", "max_tokens": 100, "stream": True, **asked.get(path, {"messages": [QUESTION]})}
    served = serve(lambda prompt: "<answer> 35 </answer>")
    access = served.gateway.open()
    answer = asyncio.run(served.client(access.key).post(f"/v1/{path}", json=body))
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    last = events[-1] if events[-1] == "[DONE]" else json.loads(events[-1])["type"]
    assert last in ("[DONE]", "message_stop", "response.completed")
    assert "35" in answer.text
    assert served.gateway.sessions[access.name].undelivered == []


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("<tool_call> add a 17 </tool_call>", "add a 17"),  # malformed
        ("<tool_call> subtract a = 17 </tool_call>", 'subtract({"a": 17})'),  # not on offer
    ],
)
def test_what_no_program_can_call_is_delivered_as_text(reply, text) -> None:
    served = serve(lambda prompt: reply)
    answer = asyncio.run(post(served.open(), "/v1/chat/completions", CHAT))
    [choice] = answer["choices"]
    assert (choice["finish_reason"], choice["message"]["content"].strip()) == ("stop", text)
    assert "tool_calls" not in choice["message"]


def test_calls_that_can_be_made_are_handed_out_beside_those_that_cannot() -> None:
    served = serve(lambda prompt: "<tool_call> add a = 1 b = 2\n add a 17 </tool_call>")
    answer = asyncio.run(post(served.open(), "/v1/chat/completions", CHAT))
    [choice] = answer["choices"]
    assert (choice["finish_reason"], choice["message"]["content"].strip()) == ("tool_calls", "add a 17")
    assert [json.loads(call["function"]["arguments"]) for call in choice["message"]["tool_calls"]] == [{"a": 1, "b": 2}]


def test_several_calls_are_text_where_one_is_allowed() -> None:
    calls = tuple(ToolCall(id=f"call_{k}", name="add", arguments="{}") for k in range(2))
    served = serve(lambda prompt: reply_message("", tool_calls=calls))
    answer = asyncio.run(post(served.open(), "/v1/chat/completions", {**CHAT, "parallel_tool_calls": False}))
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] == "add({})\nadd({})"


def test_two_replies_to_one_request_are_siblings() -> None:
    served = serve()
    access = served.gateway.open()
    answer = asyncio.run(post(served.client(access.key), "/v1/chat/completions", {**CHAT, "n": 2, "logprobs": True}))
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    ids = {choice["message"]["tool_calls"][0]["id"] for choice in answer["choices"]}
    assert len(ids) == 2
    nodes = served.gateway.sessions[access.name].forest.replies
    assert len({node.parent for node in nodes}) == 1
    assert answer["usage"]["completion_tokens"] == sum(len(node.record.completion.token_ids) for node in nodes)
    tokens = answer["choices"][0]["logprobs"]["content"]
    assert len(tokens) == len(nodes[0].record.completion.token_ids)
    assert {params.seed for _, _, params in served.engine.requests} != {served.engine.requests[0][2].seed}


def test_a_title_generator_beside_the_agent_is_a_conversation_of_its_own() -> None:
    served = serve()
    access = served.gateway.open()
    client = served.client(access.key)
    title = {"model": "policy", "messages": [{"role": "system", "content": "Give a title for 1 + 1"}, QUESTION]}

    async def both() -> None:
        await asyncio.gather(chat_loop(client), post(client, "/v1/chat/completions", title))

    asyncio.run(both())
    session = served.gateway.sessions[access.name]
    assert (session.counts["opened"], session.counts["continued"]) == (2, 1)


def test_a_stop_string_cuts_the_text_and_the_echo_continues() -> None:
    served = serve(lambda prompt: "I see Observation: 7")
    access = served.gateway.open()
    client = served.client(access.key)
    body = {"model": "policy", "messages": [QUESTION], "stop": ["Observation:"]}

    async def play() -> None:
        first = await post(client, "/v1/chat/completions", body)
        message = first["choices"][0]["message"]
        assert (message["content"].strip(), first["choices"][0]["finish_reason"]) == ("I see", "stop")
        await post(client, "/v1/chat/completions", {**body, "messages": [QUESTION, message, QUESTION]})

    asyncio.run(play())
    assert served.gateway.sessions[access.name].counts["continued"] == 1
    assert "Observation:" in served.engine.requests[0][2].stop


def test_raw_text_and_token_ids_are_completed() -> None:
    served = serve(lambda prompt: "35")
    client = served.open()
    assert served.policy.encode is not None
    ids = list(served.policy.encode("17 + 18"))

    async def play() -> list[Any]:
        return [await post(client, "/v1/completions", {"model": "policy", "prompt": p}) for p in ("17 + 18", ids)]

    for answer in asyncio.run(play()):
        assert answer["choices"][0]["text"] == "35"
    assert [request[1].tolist() for request in served.engine.requests] == [ids, ids]


# ------------------------------------------------------------------ keys and sessions


def test_a_key_opens_its_session_and_no_other() -> None:
    served = serve()
    one, other = served.gateway.open(name="one"), served.gateway.open(name="other")

    async def ask(key: str | None, path: str, header: str = "authorization") -> Any:
        headers = {} if key is None else {header: f"Bearer {key}" if header == "authorization" else key}
        answer = await served.client().post(f"{path}/v1/chat/completions", json=CHAT, headers=headers)
        return answer.status_code, answer.json().get("error", {}).get("code")

    async def play() -> None:
        assert await ask(one.key, one.path) == (200, None)
        assert await ask(one.key, "") == (200, None)
        assert await ask(one.key, "", "x-api-key") == (200, None)
        assert await ask(None, one.path) == (401, "invalid_api_key")
        assert await ask("guess", one.path) == (401, "invalid_api_key")
        assert await ask(one.key, other.path) == (403, "invalid_api_key")
        assert await ask(one.key, "/sessions/third") == (404, "session_not_found")
        await served.gateway.end("one")
        assert await ask(one.key, one.path) == (403, "session_over")
        assert await ask(other.key, other.path) == (200, None)

    asyncio.run(play())


def test_an_open_gateway_keeps_those_with_other_keys_apart() -> None:
    served = serve(is_open=True)

    async def play() -> None:
        for key in ("a", "b", None):
            assert await chat_loop(served.client(key)) == "<answer> 35 </answer>"
        opened = await served.client().post("/sessions", json={"name": "mine"})
        assert opened.status_code == 201
        mine = served.client(opened.json()["key"], opened.json()["path"])
        assert await chat_loop(mine) == "<answer> 35 </answer>"
        assert (await mine.get("")).json()["counts"]["continued"] == 1
        assert (await mine.delete("")).json()["replies"] == 2
        assert (await mine.get("")).status_code == 403
        again = await served.client().post("/sessions", json={"name": "mine"})
        assert (again.status_code, again.headers["x-should-retry"]) == (409, "false")
        counts = (await served.client().get("/metrics")).json()
        assert (counts["opened"], counts["continued"], counts["sessions"]) == (4, 4, 4)

    asyncio.run(play())


def test_a_shared_session_is_replaced_before_it_grows_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.gateway.gateway.MAX_SHARED_REPLIES", 2)
    served = serve(is_open=True, idle_s=3600.0)

    async def play() -> None:
        for _ in range(3):
            assert await chat_loop(served.client("a")) == "<answer> 35 </answer>"
        assert len(served.gateway.sessions) == 3
        await served.gateway.sweep()
        assert [session.forest.num_replies for session in served.gateway.sessions.values()] == [2]

    asyncio.run(play())
    assert served.gateway.count()["continued"] == 3


def test_a_gateway_with_a_key_opens_for_it_alone() -> None:
    served = serve(is_open=True, key="secret")

    async def play() -> None:
        for key, status in (("secret", 200), ("guess", 401), (None, 401)):
            assert (await served.client(key).post("/v1/chat/completions", json=CHAT)).status_code == status
            assert (await served.client(key).post("/sessions")).status_code == (201 if status == 200 else 401)

    asyncio.run(play())
    closed = serve()
    assert asyncio.run(closed.client().post("/sessions")).status_code == 403


def test_pages_of_other_machines_are_refused() -> None:
    served = serve(is_open=True)
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}, {"host": "[::1"}):
        answer = asyncio.run(served.client().post("/v1/chat/completions", json=CHAT, headers=headers))
        assert answer.status_code == 403
    assert asyncio.run(served.client().head("/")).status_code == 200


def test_models_and_tokens_are_told() -> None:
    served = serve()
    client = served.open()

    async def play() -> None:
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "policy"
        assert (await client.get("/v1/models/policy")).json()["object"] == "model"
        assert (await client.get("/v1/models/policy/planner")).json()["id"] == "policy/planner"
        for name in ("gpt", "policy/a.b", "policy/a/b"):
            assert (await client.get(f"/v1/models/{name}")).status_code == 404, name
        body = {"model": "policy", "messages": [QUESTION]}
        counted = await post(client, "/v1/messages/count_tokens", body)
        answer = await post(client, "/v1/messages", {**body, "max_tokens": 100})
        assert counted == {"input_tokens": answer["usage"]["input_tokens"]}

    asyncio.run(play())
    assert len(served.engine.requests) == 1


# ------------------------------------------------------------------ rewards


def test_rewards_belong_to_a_session_or_to_one_of_its_replies() -> None:
    served = serve()
    access = served.gateway.open()
    client = served.client(access.key, access.path)

    async def play() -> None:
        answer = await post(client, "/v1/chat/completions", CHAT)
        call = answer["choices"][0]["message"]["tool_calls"][0]["id"]
        assert await post(client, "/reward", {"reward": 1, "parts": {"exact": 0.5}}) == {
            "session": access.name,
            "reward": 1.0,
        }
        for issued in (answer["id"], call):
            await post(client, "/reward", {"reward": 0.25, "reply": issued})
        for body, status, field in (
            ({"reward": "much"}, 400, "reward"),
            ({}, 400, "reward"),
            ({"reward": 10**400}, 400, "reward"),
            ({"reward": 1, "reply": "call_0"}, 404, "reply"),
            ({"reward": 1, "parts": {"exact": 1}, "reply": answer["id"]}, 400, "parts"),
        ):
            refused = await client.post("/reward", json=body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (status, field)
        refused = await client.post("/reward", content=b'{"reward": NaN}')
        assert refused.status_code == 400

    asyncio.run(play())
    session = served.gateway.sessions[access.name]
    assert session.reward == Scored.of(1.0, {"exact": 0.5})
    assert session.rewards == {session.forest.replies[0].index: 0.25}
    session.refuse_rewards()
    for body in ({"reward": 9}, {"reward": 9, "reply": "call_0"}):
        refused = asyncio.run(client.post("/reward", json=body))
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")
    assert session.reward == Scored.of(1.0, {"exact": 0.5})
    unknown = asyncio.run(client.post("/../nobody/reward", json={"reward": 1}))
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "session_not_found")
    asyncio.run(served.gateway.end(access.name))
    for body in ({"reward": 1}, {"reward": 1, "reply": "call_0"}):
        late = asyncio.run(client.post("/reward", json=body))
        assert (late.status_code, late.json()["error"]["code"]) == (403, "session_over")


# ------------------------------------------------------------------ limits and bad input


@pytest.mark.parametrize(
    ("limits", "calls", "status", "code"),
    [
        (Limits(max_context=5, max_reply_tokens=9), 1, 400, "context_length_exceeded"),
        (Limits(max_context=999, max_reply_tokens=99, max_replies=2), 3, 400, "reply_limit"),
        (Limits(max_context=999, max_reply_tokens=99, timeout_s=0.0), 1, 403, "time_limit"),
    ],
)
def test_limits_refuse_in_a_way_that_clients_understand(limits, calls, status, code) -> None:
    served = serve(limits=limits)
    client = served.open()

    async def play() -> httpx.Response:
        for _ in range(calls):
            answer = await client.post("/v1/chat/completions", json=CHAT)
        return answer

    answer = asyncio.run(play())
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert (answer.headers["x-should-retry"], "retry-after" in answer.headers) == ("false", False)


def test_a_conversation_has_a_limit_of_turns() -> None:
    served = serve(limits=Limits(max_context=999, max_reply_tokens=99, max_turns=1))
    with pytest.raises(AssertionError, match="turn_limit"):
        asyncio.run(chat_loop(served.open()))
    assert len(served.engine.requests) == 1


def test_a_client_may_ask_for_fewer_tokens() -> None:
    served = serve(lambda prompt: "<answer> 17 18 17 18 </answer>")
    answer = asyncio.run(post(served.open(), "/v1/chat/completions", {**CHAT, "max_tokens": 3}))
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == ("length", 3)


def test_the_queue_has_a_bound() -> None:
    served = serve(max_waiting=0)
    answer = asyncio.run(
        served.open().post("/v1/messages", json={"model": "policy", "max_tokens": 9, "messages": [QUESTION]})
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize(
    ("content", "status", "problem"),
    [
        (b"", 400, "no JSON"),
        (b"{", 400, "no JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'{"model": "\xff"}', 400, "no UTF-8: byte 11"),
        (b'{"model": "\\ud800"}', 400, "half a surrogate pair"),
        (b'{"temperature": NaN}', 400, "NaN is not JSON"),
        (b'{"temperature": 1e999}', 400, "1e999 is no finite number"),
        (b'{"model": "policy", "temperature": 1%s}' % (b"0" * 400), 400, "temperature: must be a number from 0 to 2"),
        (b'{"model": "policy", "prompt": [5, 2147483648]}', 400, "prompt: must be one text or one list of token ids"),
        (b"[" * 200_000, 400, "no JSON"),
        (b'{"tools": [{"type": "%s"}]}' % (b"x" * 2000), 400, "are supported"),
        (b'{"model": "a\\nb", "messages": [{"role": "user", "content": "x"}]}', 404, "is not served here"),
        (
            b'{"tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "function", "name": {}}}',
            400,
            "which is none of the tools",
        ),
        (b" " * (MAX_BODY_BYTES + 1), 413, "more than 10,485,760 bytes"),
        (b'{"model": "gpt", "messages": [{"role": "user", "content": "x"}]}', 404, "ask for 'policy'"),
        (b'{"model": "policy", "messages": []}', 400, "messages: must end"),
        (b'{"model": "policy", "previous_response_id": "resp_0", "input": "x"}', 404, "is no reply of this session"),
        (
            b'{"model": "policy", "input": "x", "tool_choice": "required", "tools": [{"name": "f"}]}',
            400,
            "cannot be forced",
        ),
        (
            b'{"model": "policy", "input": "x", "text": {"format": {"type": "json_object"}}}',
            400,
            "text: a reply cannot",
        ),
    ],
)
def test_bad_input_is_one_clear_error_and_nothing_is_lost(content, status, problem) -> None:
    served = serve()
    client = served.open()
    path = "/v1/responses" if b'"input"' in content else "/v1/chat/completions"
    path = "/v1/completions" if b'"prompt"' in content else path

    async def play() -> httpx.Response:
        first = await post(client, "/v1/chat/completions", CHAT)
        answer = await client.post(path, content=content)
        call = first["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "35"}
        await post(client, "/v1/chat/completions", {**CHAT, "messages": [QUESTION, call, result]})
        return answer

    answer = asyncio.run(play())
    assert (answer.status_code, answer.headers["x-should-retry"]) == (status, "false")
    assert problem in answer.json()["error"]["message"]
    assert "\n" not in answer.json()["error"]["message"]
    assert len(answer.json()["error"]["message"]) < 600
    assert len(served.engine.requests) == 2


def test_an_engine_that_fails_is_an_error_of_one_call() -> None:
    fails = [True]

    def reply(prompt: str) -> str:
        if fails:
            fails.pop()
            raise EngineError("out of pages")
        return "<answer> 35 </answer>"

    served = serve(reply)
    client = served.open()

    async def play() -> None:
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")
        assert "out of pages" in answer.json()["error"]["message"]
        await post(client, "/v1/chat/completions", CHAT)

    asyncio.run(play())


def test_a_failure_of_the_server_is_an_error_of_its_protocol_and_reaches_the_log() -> None:
    def decode(ids: Any) -> str:
        raise LookupError("a broken tokenizer")

    policy = replace(serve().policy, decode=decode)
    gateway = Gateway(policy, Limits(max_context=999, max_reply_tokens=99), SamplingRule(), is_open=True)
    body = json.dumps({**CHAT, "logprobs": True}).encode()
    answer = Answer()

    async def play() -> None:
        await send(Application(gateway), "/v1/chat/completions", body, {}, answer=answer)

    with pytest.raises(LookupError, match="a broken tokenizer"):
        asyncio.run(play())
    assert (answer.status, answer.headers["x-should-retry"]) == (500, "false")
    assert json.loads(answer.body)["error"]["code"] == "internal_error"


def test_unknown_paths_are_refused() -> None:
    served = serve(is_open=True)
    for method, path in (("POST", "/v1/embeddings"), ("GET", "/v1/chat/completions"), ("GET", "/x"), ("PUT", "/")):
        assert asyncio.run(served.client().request(method, path)).status_code == 404
