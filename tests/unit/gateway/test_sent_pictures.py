"""Pictures that clients send: in every protocol's own form, kept by digest, at their places in what is sampled."""

import asyncio
import base64
import io
import json
from typing import Any

import httpx
import numpy as np
import pytest
from gateway_world import serve
from PIL import Image
from seeing_layouts import HeldPictures, PlainLayout

from turnwise.core.messages import ImagePart, TextPart, ToolCall, hash_pixels, reply_message
from turnwise.gateway import http
from turnwise.gateway.protocols import chat, messages, pictures, responses
from turnwise.gateway.protocols.pictures import PictureReader
from turnwise.gateway.refusals import Refusal
from turnwise.gateway.turns import to_turns
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.images import PictureRenderer
from turnwise.rendering.tokenizer import train_tokenizer

PROTOCOLS: Any = {"chat": chat, "messages": messages, "responses": responses}
RED, BLUE = np.full((4, 6, 3), (200, 10, 10), np.uint8), np.full((4, 4, 3), (10, 10, 200), np.uint8)
CALL = {"id": "call_1", "type": "function", "function": {"name": "zoom", "arguments": "{}"}}


def encode(pixels: np.ndarray, kind: str = "PNG") -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def digest(pixels: np.ndarray) -> str:
    return hash_pixels(pixels.tobytes(), pixels.shape[1], pixels.shape[0])


def url(pixels: np.ndarray) -> str:
    return f"data:image/png;base64,{encode(pixels)}"


def block(pixels: np.ndarray) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encode(pixels)}}


CONVERSATIONS: Any = {
    "chat": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Read "},
                    {"type": "image_url", "image_url": {"url": url(RED), "detail": "low"}},
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "image_url", "image_url": url(BLUE)}]},
        ],
    },
    "messages": {
        "max_tokens": 100,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Read "}, block(RED)]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "zoom", "input": {}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": [block(BLUE)]}],
            },
        ],
    },
    "responses": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Read "},
                    {"type": "input_image", "image_url": url(RED), "detail": "auto", "file_id": None},
                ],
            },
            {"type": "function_call", "call_id": "call_1", "name": "zoom", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [{"type": "input_image", "image_url": url(BLUE)}],
            },
        ],
    },
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_protocol_reads_the_same_pictures(name: str) -> None:
    held = HeldPictures()
    call = PROTOCOLS[name].read({"model": "policy", **CONVERSATIONS[name]}, PictureReader(held))
    asked, _, answered = call.messages
    red = ImagePart(digest=digest(RED), width=6, height=4)
    assert asked.content == (TextPart(text="Read "), red)
    assert answered.content == (ImagePart(digest=digest(BLUE), width=4, height=4),)
    # No pixels stay in a message; they are in the store, as they were sent.
    assert all(part.pixels is None for message in call.messages for part in message.images)
    assert held.read(digest(RED)).tobytes() == RED.tobytes()


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_policy_of_text_refuses_them(name: str) -> None:
    with pytest.raises(Refusal, match=r"content\[1\]\.type: is '.*'; the policy reads text") as caught:
        PROTOCOLS[name].read({"model": "policy", **CONVERSATIONS[name]})
    assert caught.value.status == 400


def said(*parts: object, role: str = "user") -> dict[str, Any]:
    return {"model": "policy", "max_tokens": 9, "messages": [{"role": role, "content": list(parts)}]}


CUT = base64.b64encode(base64.b64decode(encode(np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)))[:900])


@pytest.mark.parametrize(
    ("name", "body", "field", "problem"),
    [
        ("chat", said({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}), "image_url.url", "fetched"),
        ("chat", said({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), "image_url.url", "no data"),
        ("chat", said({"type": "image_url", "image_url": "/etc/passwd"}), "image_url", "no data URL"),
        ("chat", said({"type": "image_url", "image_url": {}}), "image_url.url", "nothing"),
        ("chat", said({"type": "image_url", "image_url": {"url": "data:,"}}), "image_url", "base64"),
        ("chat", said({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}), "image_url", "empty"),
        ("chat", said({"type": "image_url", "image_url": 7}), "image_url", "string"),
        ("chat", said({"type": "input_image", "file_id": "file-1"}), "file_id", "data URL"),
        ("chat", said({"type": "image_url", "image_url": url(RED)}, role="assistant"), "type", "reads text"),
        (
            "messages",
            said({"type": "image", "source": {"type": "url", "url": "https://a.b"}}),
            "source.type",
            "fetched",
        ),
        ("messages", said({"type": "image", "source": {"type": "base64", "data": "%%"}}), "source.data", "no base64"),
        ("messages", said({"type": "image", "source": {"type": "base64", "data": CUT.decode()}}), "source", "decoded"),
        ("messages", said({"type": "image", "source": "x"}), "source", "object"),
        ("messages", said({"type": "image"}), "source.type", "nothing"),
    ],
)
def test_what_is_no_picture_is_refused_by_name(name: str, body: dict[str, Any], field: str, problem: str) -> None:
    held = HeldPictures()
    with pytest.raises(Refusal) as caught:
        PROTOCOLS[name].read(body, PictureReader(held))
    start = "messages[0].content"
    assert caught.value.field == f"{start}[0].{field}"
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert held.parts == {}


def test_pictures_of_one_request_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_REQUEST_PIXELS", 2 * RED.shape[0] * RED.shape[1])
    part = {"type": "image_url", "image_url": url(RED)}
    chat.read(said(part, part), PictureReader(HeldPictures()))
    with pytest.raises(Refusal, match=r"content\[2\]\.image_url: is no picture .* more than 48 pixels"):
        chat.read(said(part, part, part), PictureReader(HeldPictures()))


class Seen:
    """A gateway whose policy reads pictures: one place for two pixels of width."""

    def __init__(self) -> None:
        special = [*CALLS_FORMAT.special_tokens, "<image>"]
        tokenizer = train_tokenizer(["Read the page", "zoom"] * 20, vocab_size=400, special_tokens=special)
        self.marker_id = int(tokenizer.convert_tokens_to_ids("<image>"))
        layout: Any = PlainLayout(self.marker_id)
        self.held = HeldPictures()
        renderer = PictureRenderer(CallsRenderer(tokenizer, marker=layout.marker), layout, self.held)
        zoom = reply_message("", tool_calls=(ToolCall(id="call_0", name="zoom", arguments="{}"),))
        self.served = serve(
            lambda prompt: zoom if prompt.count("zoom") < 2 else "red", renderer=renderer, tokenizer=tokenizer
        )


def test_pictures_are_sampled_on_and_stored_at_their_places() -> None:
    seen = Seen()

    async def run() -> Any:
        access = seen.served.gateway.open()
        tools = [{"type": "function", "function": {"name": "zoom"}}]
        async with seen.served.client(access.key, access.path) as client:
            talk: list[Any] = [CONVERSATIONS["chat"]["messages"][0]]

            async def ask() -> Any:
                body = {"model": "policy", "messages": talk, "tools": tools}
                answer = await client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                return answer.json()["choices"][0]["message"]

            talk.append(await ask())
            call_id = talk[-1]["tool_calls"][0]["id"]
            shown = {
                "role": "tool",
                "tool_call_id": call_id,
                "content": [{"type": "image_url", "image_url": url(BLUE)}],
            }
            talk.append(shown)
            await ask()
            # The same words around another picture are another conversation.
            talk[0] = {
                "role": "user",
                "content": [talk[0]["content"][0], {"type": "image_url", "image_url": url(BLUE)}],
            }
            del talk[1:]
            await ask()
        return seen.served.gateway.sessions[access.name]

    session = asyncio.run(run())
    told = to_turns(session.forest.replies)
    assert [[(span.length, span.digest) for span in turn.images] for turn in told.turns] == [
        [(3, digest(RED))],
        [(2, digest(BLUE))],
        [(2, digest(BLUE))],
    ]
    for turn in told.turns:
        [span] = turn.images
        assert set(turn.context_ids[span.start : span.start + span.length].tolist()) == {seen.marker_id}
    assert [turn.parent for turn in told.turns] == [None, 0, None]
    [record] = told.turns[0].tool_records
    assert [part.digest for part in record.content if isinstance(part, ImagePart)] == [digest(BLUE)]
    # The engine's prompts show the pictures of the whole conversation, at their places in it.
    engine = seen.served.engine
    assert [[span.digest for span in spans] for spans in engine.images] == [
        [digest(RED)],
        [digest(RED), digest(BLUE)],
        [digest(BLUE)],
    ]
    ids, spans = engine.requests[1][1], engine.images[1]
    assert all(ids[span.start] == seen.marker_id for span in spans)
    assert told.turns[1].images[0].start + len(ids) - len(told.turns[1].context_ids) == spans[1].start


def test_a_seeing_policy_takes_larger_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 100)
    monkeypatch.setattr(http, "MAX_SEEN_BODY_BYTES", 1000)

    async def ask(served: Any, size: int) -> httpx.Response:
        async with served.open() as client:
            body = {"model": "policy", "messages": [{"role": "user", "content": "x" * size}]}
            return await client.post("/v1/chat/completions", content=json.dumps(body))

    seen = Seen().served
    assert asyncio.run(ask(seen, 500)).status_code == 200
    assert asyncio.run(ask(seen, 1000)).status_code == 413
    text = serve()
    assert text.policy.pictures is None
    assert asyncio.run(ask(text, 500)).status_code == 413
