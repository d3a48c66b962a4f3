"""Requests as no client should send them: valid ones of every protocol with pieces replaced, lost or added.

`Fuzzer.send` sends one without a network and checks the answer: a whole answer, or a refusal below 500 in the
protocol's form. `check_captured` compares what a session stored with what its engine sampled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from gateway_world import QUESTION, TOOLS, Served

from turnwise.core.protocols import Engine
from turnwise.core.types import Completion, IntArray, SamplingParams
from turnwise.core.types import Session as EngineSession
from turnwise.gateway.gateway import Access
from turnwise.gateway.http import Application
from turnwise.gateway.session import Session
from turnwise.gateway.turns import to_turns

FUNCTION = TOOLS[0]["function"]
FLAT: Any = [{"type": "function", **FUNCTION}]
CUSTOM: Any = [{"name": "add", "description": "Adds.", "input_schema": FUNCTION["parameters"]}]
OPENINGS: Mapping[str, dict[str, Any]] = {
    "chat/completions": {"model": "policy", "messages": [QUESTION], "tools": TOOLS},
    "completions": {"model": "policy", "prompt": "What is 17 + 18 ?", "max_tokens": 20},
    "responses": {"model": "policy", "input": [QUESTION], "tools": FLAT, "metadata": {}},
    "messages": {"model": "policy", "messages": [QUESTION], "tools": CUSTOM, "max_tokens": 100, "system": "Be brief."},
}
OPTIONS: Mapping[str, Any] = {
    "stream": True,
    "n": 2,
    "logprobs": True,
    "stop": ["35"],
    "stop_sequences": ["35"],
    "seed": 7,
    "temperature": 0.5,
    "top_p": 0.9,
    "tool_choice": {"type": "function", "function": {"name": "add"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": {"type": "object"}}},
    "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    "instructions": "Be brief.",
    "previous_response_id": "resp_0",
    "thread": {"type": "continue", "previous_message_id": "msg_0"},
    "parallel_tool_calls": False,
    "include": ["message.output_text.logprobs"],
    "reasoning": {"effort": "low"},
    "stream_options": {"include_usage": True},
}


DEEP, INFINITE = "(deep)", "(infinite)"
"""Stand for a value in hundreds of lists and objects, and for a number that is JSON and no finite float."""

STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**53 + 1,
    2**64,
    10**400,
    0.1,
    "",
    " ",
    "\x00\u2028\r\n",
    "\ud83d",
    "e\u0301<|im_end|><tool_call>{}</tool_call>",
    "add",
    "35 " * 3000,
    [],
    {},
    [[]],
    [None],
    {"type": "text"},
    {"type": []},
    {"name": {}},
    {"role": "assistant", "content": None},
    {"type": "image_url", "image_url": {"url": "data:,"}},
    [[{"a": [[{"a": [[0]]}]]}]],
    DEEP,
    INFINITE,
)
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {},
    {},
    {"x-stainless-retry-count": "1"},
    {"x-stainless-retry-count": "many"},
    {"host": "[::1"},
    {"host": "example.org"},
    {"origin": "http://[::1"},
    {"origin": "null"},
    {"authorization": "Basic x"},
    {"authorization": "Bearer \xe9"},
)


@dataclass(slots=True)
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.parts)


async def send(
    application: Application,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    method: str = "POST",
    leaves_after: int | None = None,
    answer: Answer | None = None,
) -> Answer:
    """Send a request. The client hangs up after so many parts of the answer: -1 within its own body, None never.
    `answer` is filled with what comes, and returned."""
    answer, left = answer or Answer(), asyncio.Event()
    first = {"type": "http.request", "body": body[: len(body) // 2], "more_body": True}
    rest = {"type": "http.request", "body": body[len(body) // 2 :], "more_body": False}
    coming = [first] if leaves_after == -1 else [first, rest]
    if leaves_after is not None and leaves_after <= 0:
        left.set()

    async def receive() -> Any:
        if coming:
            return coming.pop(0)
        await left.wait()
        return {"type": "http.disconnect"}

    async def take(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert answer.status == 0, "two answers"
            answer.status = message["status"]
            answer.headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in message["headers"]}
        elif message["body"]:
            answer.parts.append(message["body"])
            if len(answer.parts) == leaves_after:
                left.set()

    named = {"host": "127.0.0.1", **headers}
    encoded = [(key.encode(), value.encode("latin-1")) for key, value in named.items()]
    await application({"type": "http", "method": method, "path": path, "headers": encoded}, receive, take)
    return answer


class Recorder:
    """An engine that keeps what it sampled, by session. Waits a few turns of the loop first, as an engine does."""

    version = 0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.sampled: dict[str, list[tuple[IntArray, Completion]]] = {}

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: EngineSession) -> Completion:
        for _ in range(3):
            await asyncio.sleep(0)
        completion = await self._engine.generate(prompt_ids, params, session=session)
        self.sampled.setdefault(session.group, []).append((prompt_ids, completion))
        return completion

    async def release(self, session: EngineSession) -> None:
        await self._engine.release(session)

    async def close(self) -> None:
        await self._engine.close()


def check_captured(recorder: Recorder, session: Session) -> int:
    """Compare a session's turns with what its engine sampled, token for token. Returns the number of tokens."""
    turns = to_turns(session.forest.replies).turns
    kept = sorted(tuple(turn.completion.token_ids.tolist()) for turn in turns)
    sampled = recorder.sampled.get(session.name, [])
    assert kept == sorted(tuple(completion.token_ids.tolist()) for _, completion in sampled), session.name
    prompts = sorted(tuple(node.record.prompt.token_ids.tolist()) for node in session.forest.replies)
    assert prompts == sorted(tuple(prompt.tolist()) for prompt, _ in sampled), session.name
    return sum(map(len, kept))


class Fuzzer:
    """Sends fuzzed requests to one session after another."""

    def __init__(self, served: Served, random: Random) -> None:
        self.served, self.application = served, Application(served.gateway)
        self._random = random
        self.access: Access
        self._valid: list[tuple[str, dict[str, Any]]] = []

    async def open(self) -> Session:
        """Open a session and have each protocol's tool loop in it, which later requests are made from."""
        self.access = self.served.gateway.open()
        self._valid = [*OPENINGS.items(), ("completions", {"model": "policy", "prompt": [5, 6, 7]})]
        for path, body in OPENINGS.items():
            answer = await send(self.application, f"/v1/{path}", json.dumps(body).encode(), self._headers())
            assert answer.status == 200, answer.body
            self._valid += [(path, {**body, **more}) for more in continue_from(path, body, json.loads(answer.body))]
        return self.served.gateway.sessions[self.access.name]

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.access.key}"}

    def write(self) -> tuple[str, bytes, dict[str, str]]:
        """Return the path, the body and the headers of a fuzzed request."""
        random = self._random
        path, valid = random.choice(self._valid)
        body: Any = deepcopy(valid)
        if path == "messages" and random.random() < 0.1:
            path = "messages/count_tokens"
        if random.random() < 0.1:
            path, body = (
                f"../sessions/{self.access.name}/reward",
                {"reward": 1.0, "parts": {"a": 0.5}, "reply": "msg_0"},
            )
        for key in random.sample(sorted(OPTIONS), random.choice((0, 0, 1, 2))):
            body[key] = deepcopy(OPTIONS[key])
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            mutate(body, random)
        headers = {**self._headers(), **(random.choice(HEADERS) if random.random() < 0.1 else {})}
        return f"/v1/{path}".replace("/v1/..", ""), damage(write_json(body, random), random), headers

    async def send(self) -> Answer:
        """Send one, and check what came back."""
        path, body, headers = self.write()
        answer = await send(self.application, path, body, headers)
        try:
            check_answer(path, answer)
        except AssertionError as error:
            raise AssertionError(f"{error}: {path} {headers} {body[:2000]!r} -> {answer}") from error
        return answer


def write_json(body: Any, random: Random) -> bytes:
    """Return JSON, with what stands for something else replaced by it."""
    depth = random.randrange(10, 1000)
    deep = '{"a":[' * (depth // 2) + "]}" * (depth // 2)
    return json.dumps(body).replace(f'"{DEEP}"', deep).replace(f'"{INFINITE}"', "1e999").encode()


def mutate(body: dict[str, Any], random: Random) -> None:
    """Replace, remove, repeat or add one piece of a body."""
    holders = list(list_holders(body))
    holder = random.choice(holders)
    keys: list[Any] = list(range(len(holder))) if isinstance(holder, list) else list(holder)
    kind = random.randrange(5)
    if kind == 0 and isinstance(holder, dict):
        holder[random.choice(("unknown", "type", "name", "content", "strict", "cache_control"))] = strange(random)
    elif not keys:
        return
    elif kind == 1:
        del holder[random.choice(keys)]
    elif kind == 2 and isinstance(holder, list):
        holder += deepcopy(holder) * random.choice((1, 20))
    else:
        holder[random.choice(keys)] = strange(random)


def strange(random: Random) -> Any:
    """Return a value that hardly any field has."""
    return deepcopy(random.choice(STRANGE))


def list_holders(value: Any, depth: int = 0) -> Iterator[Any]:
    """Return the lists and objects in a value, down to a depth."""
    if isinstance(value, dict | list) and depth < 10:
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from list_holders(inner, depth + 1)


def damage(body: bytes, random: Random) -> bytes:
    """Return a body, in one of twelve cases with damaged bytes and in one of 500 with 10 MB more."""
    at = random.randrange(len(body) + 1)
    case = random.randrange(500)
    if case < 20:
        return body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]
    if case < 40:
        return body[:at]
    if case == 40:
        return body[:-1] + b', "padding": "' + b"x" * (10 * 2**20 - random.choice((500, 2000, -9))) + b'"}'
    if case == 41:
        return b'{"model": "policy", "messages": ' + b"[" * 100_000
    return body


def continue_from(path: str, body: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what changes in a body to continue after its answer, in each form that the protocol has."""
    if path == "chat/completions":
        message = answer["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "35"}
        yield {"messages": [*body["messages"], message, result]}
    elif path == "responses":
        [call] = [item for item in answer["output"] if item["type"] == "function_call"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "35"}
        yield {"input": [*body["input"], *answer["output"], output]}
        yield {"input": [output], "previous_response_id": answer["id"]}
    elif path == "messages":
        [call] = [block for block in answer["content"] if block["type"] == "tool_use"]
        said = {"role": "assistant", "content": answer["content"]}
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "35"}]}
        yield {"messages": [*body["messages"], said, result]}
        yield {"messages": [result], "thread": {"type": "continue", "previous_message_id": answer["id"]}}


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} in an answer")


def check_answer(path: str, answer: Answer) -> None:
    """Check that an answer is whole, or a refusal in the form of its protocol that names no traceback."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        ends = b"message_stop" if path.endswith("messages") else b"response." if "responses" in path else b"[DONE]"
        assert (answer.status, ends in answer.parts[-1]) == (200, True), "a stream without its end"
        return
    value = json.loads(answer.body, parse_constant=_refuse)
    if answer.status == 200:
        return
    assert 400 <= answer.status < 500, f"status {answer.status}"
    assert answer.headers["x-should-retry"] in ("true", "false")
    error = value["error"]
    assert "\n" not in error["message"], "no line"
    assert len(error["message"]) < 600, "a long line"
    assert isinstance(error["type"], str)
    assert (value.get("type") == "error") == ("/messages" in path), "another protocol's form"
