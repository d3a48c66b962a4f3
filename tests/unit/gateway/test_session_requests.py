"""Requests that rewrite, wait, come back by an id, or name tokens: what a session makes of them, and what it counts."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from gateway_world import QUESTION, TOOLS, serve

from turnwise.core.episodes import RequestRule
from turnwise.core.protocols import Engine
from turnwise.core.types import Completion, IntArray, SamplingParams
from turnwise.core.types import Session as EngineSession
from turnwise.gateway.exposition import write_exposition
from turnwise.gateway.sampling import Limits
from turnwise.gateway.stored import MAX_STORED
from turnwise.gateway.turns import to_turns

CHAT: Any = {"model": "policy", "messages": [QUESTION], "tools": TOOLS}
MORE, WELL = {"role": "user", "content": "And 1 + 1 ?"}, {"role": "assistant", "content": "Well."}


async def ask(client: httpx.AsyncClient, messages: list[Any]) -> httpx.Response:
    return await client.post("/v1/chat/completions", json={**CHAT, "messages": messages})


def take_step(message: Any, *, keeps_reasoning: bool = False) -> list[Any]:
    """What a client sends after a call: its echo, and the result."""
    echo = message if keeps_reasoning else {key: v for key, v in message.items() if key != "reasoning_content"}
    return [echo, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "35"}]


# ------------------------------------------------------------------ reasoning that a client leaves out, and rewrites


@pytest.mark.parametrize(
    ("reasoning", "keeps", "counts"),
    [
        ("keep", False, {"opened": 1, "continued": 2, "reasoning_dropped": 2}),
        ("keep", True, {"opened": 1, "continued": 2, "reasoning_dropped": 0}),
        ("follow", False, {"opened": 3, "continued": 0, "reasoning_dropped": 2, "reason/reasoning": 2}),
        ("follow", True, {"opened": 1, "continued": 2, "reasoning_dropped": 0}),
    ],
)
def test_the_context_keeps_reasoning_or_follows_what_the_client_sends(reasoning, keeps, counts) -> None:
    served = serve(requests=RequestRule(reasoning=reasoning))
    access = served.gateway.open()
    client = served.client(access.key)

    async def play() -> None:
        messages: list[Any] = [QUESTION]
        message = (await ask(client, messages)).json()["choices"][0]["message"]
        messages += take_step(message, keeps_reasoning=keeps)
        message = (await ask(client, messages)).json()["choices"][0]["message"]
        assert message["reasoning_content"] == "Done."
        echo = message if keeps else {"role": "assistant", "content": message["content"]}
        await ask(client, [*messages, echo, MORE])

    asyncio.run(play())
    session = served.gateway.sessions[access.name]
    assert {key: session.counts[key] for key in counts} == counts
    texts = [served.policy.decode(request[1].tolist()) for request in served.engine.requests]
    has_thought = ["I add." in text for text in texts]
    assert has_thought == ([False, True, True] if reasoning == "keep" or keeps else [False, False, False])
    assert session.undelivered == []
    assert len(to_turns(session.forest.replies).openings) == counts["opened"]


def test_an_echo_without_reasoning_proves_that_a_reply_arrived() -> None:
    served = serve(requests=RequestRule(reasoning="follow"))
    access = served.gateway.open()
    client, session = served.client(access.key), served.gateway.sessions[access.name]

    async def play() -> None:
        message = (await ask(client, [QUESTION])).json()["choices"][0]["message"]
        session.forest.replies[0].is_delivered = False  # as if the client had left before the last byte
        await ask(client, [QUESTION, *take_step(message)])

    asyncio.run(play())
    assert session.undelivered == []


def test_a_reply_that_is_named_by_its_id_keeps_its_reasoning() -> None:
    served = serve(requests=RequestRule(reasoning="follow"))
    client = served.open()
    flat = [{"type": "function", **TOOLS[0]["function"]}]
    body = {"model": "policy", "input": QUESTION["content"], "tools": flat}

    async def play() -> None:
        first = (await client.post("/v1/responses", json=body)).json()
        output = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "35"}
        more = {**body, "input": [output], "previous_response_id": first["id"]}
        assert (await client.post("/v1/responses", json=more)).status_code == 200

    asyncio.run(play())
    assert served.gateway.count()["continued"] == 1


@pytest.mark.parametrize(
    ("change", "reason", "problem"),
    [
        (lambda m: [{"role": "user", "content": "What is 17 + 19 ?"}, *m], None, None),  # another conversation
        (lambda m: [{**QUESTION}, {**m[0], "content": "I did."}, *m[1:]], "rewritten", "delivered reply: content"),
        (lambda m: [QUESTION, m[0], {**m[1], "content": "36"}, WELL, MORE], "edited", "'5' became '6'"),
        (lambda m: [QUESTION, *m[:2], WELL, MORE], "rewritten", "delivered reply: content"),
        (lambda m: [QUESTION, m[0], {**m[1], "content": "36"}], None, None),  # another answer, beside the first one
        (lambda m: [QUESTION, MORE], None, None),  # nothing that was sampled is before it
    ],
)
def test_a_rewritten_conversation_is_refused_where_it_is_to_be(change, reason, problem) -> None:
    served = serve(requests=RequestRule(on_rewrite="refuse"))
    access = served.gateway.open()
    client, session = served.client(access.key), served.gateway.sessions[access.name]

    async def play() -> httpx.Response:
        message = (await ask(client, [QUESTION])).json()["choices"][0]["message"]
        said = take_step(message)
        assert (await ask(client, [QUESTION, *said])).status_code == 200
        return await ask(client, change([*said, MORE]))

    answer = asyncio.run(play())
    if reason is None:
        assert (answer.status_code, session.refused) == (200, None)
        return
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], answer.headers["x-should-retry"]) == (400, reason, "false")
    assert problem in error["message"]
    assert "allow on_rewrite = branch" in error["message"]
    assert (session.counts[f"refused/{reason}"], len(served.engine.requests)) == (1, 2)
    assert session.refused is not None


# ------------------------------------------------------------------ waiting


class Gate:
    """An engine that notes the order in which it is asked, and waits."""

    version = 0

    def __init__(self, engine: Engine) -> None:
        self.opened, self.asked = asyncio.Event(), list[int]()
        self.most, self._running, self._engine = 0, 0, engine

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: EngineSession) -> Completion:
        self.asked.append(len(prompt_ids))
        self._running += 1
        self.most = max(self.most, self._running)
        await self.opened.wait()
        self._running -= 1
        return await self._engine.generate(prompt_ids, params, session=session)

    async def release(self, session: EngineSession) -> None:
        await self._engine.release(session)

    async def close(self) -> None:
        await self._engine.close()


def test_calls_beyond_those_at_once_wait_in_order_and_beyond_a_bound_are_refused() -> None:
    async def play() -> None:
        limits = Limits(max_context=999, max_reply_tokens=99, max_concurrent=2)
        served = serve(wrap=Gate, limits=limits, max_waiting=4)
        engine: Any = served.policy.engine
        access = served.gateway.open()
        client, session = served.client(access.key), served.gateway.sessions[access.name]
        calls = []
        for number in range(4):  # each a little longer, so that the order shows
            said = [{"role": "user", "content": "17 + 18 " * (number + 1)}]
            calls.append(asyncio.ensure_future(ask(client, said)))
            while session.num_open <= number:
                await asyncio.sleep(0)
        while session.num_waiting < 2:
            await asyncio.sleep(0)
        refused = await ask(client, [QUESTION])
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_calls")
        assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("1", "true")
        counts = (await client.get("/metrics")).json()
        assert (counts["open_calls"], counts["waiting_replies"]) == (4, 2)
        engine.opened.set()
        assert [(await call).status_code for call in calls] == [200] * 4
        assert (engine.asked, engine.most) == (sorted(engine.asked), 2)
        assert session.num_waiting == 0

    asyncio.run(play())


def test_a_session_that_ends_forgets_who_waits() -> None:
    async def play() -> None:
        served = serve(wrap=Gate, limits=Limits(max_context=999, max_reply_tokens=99, max_concurrent=1))
        access = served.gateway.open()
        client, session = served.client(access.key), served.gateway.sessions[access.name]
        calls = [asyncio.ensure_future(ask(client, [QUESTION])) for _ in range(3)]
        while session.num_waiting < 2:
            await asyncio.sleep(0)
        await served.gateway.end(access.name)
        assert {(await call).json()["error"]["code"] for call in calls} == {"session_over"}
        assert session.num_waiting == 0

    asyncio.run(play())


# ------------------------------------------------------------------ stored responses


def test_a_stored_response_is_read_and_deleted_by_its_id() -> None:
    served = serve()
    one, other = served.open(), served.open()
    body = {"model": "policy", "input": "What is 17 + 18 ?", "metadata": {"run": "7"}}

    async def play() -> None:
        written = (await one.post("/v1/responses", json=body)).json()
        streamed = (await one.post("/v1/responses", json={**body, "stream": True})).text
        last = json.loads(streamed.split("data: ")[-1])["response"]
        for answer in (written, last):
            assert (await one.get(f"/v1/responses/{answer['id']}")).json() == answer
        hidden = (await one.post("/v1/responses", json={**body, "store": False})).json()
        for client, issued in ((one, hidden["id"]), (one, "resp_0"), (other, written["id"])):
            for method in ("GET", "DELETE"):
                refused = await client.request(method, f"/v1/responses/{issued}")
                error = refused.json()["error"]
                assert (refused.status_code, error["code"], error["param"]) == (
                    404,
                    "response_not_found",
                    "response_id",
                )
        refused = await one.get(f"/v1/responses/{written['id']}?stream=true")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")
        deleted = await one.delete(f"/v1/responses/{written['id']}")
        assert deleted.json() == {"id": written["id"], "object": "response", "deleted": True}
        assert (await one.get(f"/v1/responses/{written['id']}")).status_code == 404
        again = await one.post("/v1/responses", json={**body, "previous_response_id": written["id"]})
        assert (again.status_code, again.json()["error"]["code"]) == (404, "previous_response_not_found")
        for _ in range(MAX_STORED):
            await one.post("/v1/responses", json=body)
        assert (await one.get(f"/v1/responses/{last['id']}")).status_code == 404

    asyncio.run(play())


# ------------------------------------------------------------------ token ids and numbers that engines refuse


@pytest.mark.parametrize(
    ("prompt", "field", "problem"),
    [
        ([5, 100_000], "prompt[1]", "100000 is no token; the vocabulary has"),
        ([2**31 - 1], "prompt[0]", "is no token"),
        ([[7, 5_000]], "prompt[1]", "5000 is no token"),
        ([-1], "prompt", "list of token ids"),
    ],
)
def test_token_ids_outside_the_vocabulary_are_refused_by_name(prompt, field, problem) -> None:
    served = serve()
    answer = asyncio.run(served.open().post("/v1/completions", json={"model": "policy", "prompt": prompt}))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert problem in error["message"]
    assert served.engine.requests == []


@pytest.mark.parametrize(
    ("asked", "temperature", "top_p"),
    [
        ({"top_p": 0}, 1.0, 1e-6),  # the smallest set of tokens with any mass: the likeliest one
        ({"top_p": 0.5, "temperature": 0.7}, 0.7, 0.5),
        ({"temperature": 1e-30}, 0.0, 1.0),  # logits divided by it are infinite
        ({"temperature": 0}, 0.0, 1.0),
    ],
)
def test_what_no_engine_can_divide_by_is_what_it_tends_to(asked, temperature, top_p) -> None:
    served = serve()
    asyncio.run(served.open().post("/v1/chat/completions", json={**CHAT, **asked}))
    [(_, _, params)] = served.engine.requests
    assert (params.temperature, params.top_p) == (temperature, top_p)


# ------------------------------------------------------------------ what is counted


def test_counts_and_waits_are_told_as_json_and_as_text() -> None:
    served = serve()
    client = served.open()

    async def play() -> tuple[Any, str]:
        message = (await ask(client, [QUESTION])).json()["choices"][0]["message"]
        await ask(client, [QUESTION, *take_step(message)])
        await ask(client, [QUESTION, {**message, "content": "I did."}, take_step(message)[1]])
        text = await served.client().get("/metrics", headers={"accept": "text/plain;version=0.0.4"})
        assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
        return (await served.client().get("/metrics")).json(), text.text

    counts, text = asyncio.run(play())
    assert (counts["reason/rewritten"], counts["reason/first"], counts["continued"]) == (1, 1, 1)
    for kind in ("queue", "first_token", "reply"):
        spent = counts["seconds"][kind]
        assert spent["count"] == 3
        assert 0 <= spent["max"] <= spent["sum"]
    lines = text.splitlines()
    assert 'turnwise_gateway_requests_total{kind="continued"} 1' in lines
    assert 'turnwise_gateway_reasons_total{kind="rewritten"} 1' in lines
    assert f'turnwise_gateway_tokens_total{{kind="sampled"}} {counts["sampled_tokens"]}' in lines
    assert "turnwise_gateway_first_token_seconds_count 3" in lines
    assert "turnwise_gateway_open_sessions 1" in lines
    assert "# TYPE turnwise_gateway_open_sessions gauge" in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert write_exposition({}, {}) == ""


def test_signals_say_how_requests_found_their_place_and_how_long_they_took() -> None:
    served = serve()
    access = served.gateway.open()
    client = served.client(access.key)

    async def play() -> None:
        message = (await ask(client, [QUESTION])).json()["choices"][0]["message"]
        await ask(client, [QUESTION, *take_step(message)])
        await ask(client, [QUESTION])
        await ask(client, [QUESTION, {**message, "content": "I did."}, take_step(message)[1]])

    asyncio.run(play())
    turns = to_turns(served.gateway.sessions[access.name].forest.replies).turns
    signals = [{signal.name.removeprefix("gateway_"): signal.value for signal in turn.signals} for turn in turns]
    for name, values in {
        "continued": [0, 1, 0, 0],
        "branched": [0, 0, 1, 0],
        "rewritten": [0, 0, 0, 1],
        "reason_rewritten": [0, 0, 0, 1],
        "reason_edited": [0, 0, 0, 0],
        "reasoning_dropped": [0, 1, 0, 0],
    }.items():
        assert [each[name] for each in signals] == values, name
    assert all(0 <= each["queue_seconds"] <= each["first_token_seconds"] for each in signals)


def test_conversations_of_a_group_are_one_group_of_the_engine() -> None:
    served = serve()
    accesses = [served.gateway.open(group="train/3") for _ in range(2)] + [served.gateway.open()]

    async def play() -> None:
        for access in accesses:
            client = served.client(access.key)
            message = (await ask(client, [QUESTION])).json()["choices"][0]["message"]
            await ask(client, [QUESTION, *take_step(message)])
            await ask(client, [QUESTION])  # a branch: a conversation of its own, of the same member

    asyncio.run(play())
    names = [session for session, _, _ in served.engine.requests]
    assert [name.group for name in names] == ["train/3"] * 6 + [accesses[2].name] * 3
    assert [name.name.partition("/")[0] for name in names] == [access.name for access in accesses for _ in range(3)]
    for first in (0, 3, 6):
        assert names[first] == names[first + 1] != names[first + 2]
