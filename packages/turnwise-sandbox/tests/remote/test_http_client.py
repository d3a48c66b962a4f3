"""The HTTP client with servers that misbehave: what it repeats, what it accepts, and how its errors read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator

import pytest

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.remote.http import HttpSandbox
from turnwise_sandbox.types import Execution, Limits, Program

FINISHED = {"status": "Finished", "execution_time": 0.25, "return_code": 0, "stdout": "hi\n", "stderr": ""}
TOKEN = "a-token-for-the-tests-only"


class Server:
    """Answers the first request of every connection with the same bytes, closes it, and keeps the requests."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        self.requests.append(head + await reader.readexactly(length))
        writer.write(self.answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[HttpSandbox]:
        server = await asyncio.start_server(self.take, "127.0.0.1", 0)
        client = HttpSandbox(
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", dialect="sandbox_fusion", max_queue_s=5.0
        )
        try:
            yield client
        finally:
            await client.close()
            server.close()


def to_http(body: object, status: str = "200 OK", extra: str = "") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n{extra}\r\n".encode() + content


def run_against(server: Server, program: Program | None = None) -> Execution:
    async def once() -> Execution:
        async with server.running() as client, asyncio.timeout(15):
            return await client.run(program or Program(code="print('hi')"), Limits(wall_s=2.0))

    return asyncio.run(once())


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNWISE_SANDBOX_TOKEN", raising=False)


def test_a_sandbox_fusion_server_is_asked_in_its_words() -> None:
    server = Server(
        to_http({"status": "Success", "message": "", "run_result": FINISHED, "files": {"o": "AQ=="}, "new_field": 1})
    )
    execution = run_against(server, Program(code="print('hi')", stdin=b"in", files={"a": b"\xff"}, outputs=("o",)))
    assert (execution.stdout, execution.exit_code, execution.wall_s, execution.files) == (
        b"hi\n",
        0,
        0.25,
        {"o": b"\x01"},
    )
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /run_code HTTP/1.1")
    assert b"authorization" not in head.lower()
    sent = json.loads(body)
    assert {name: sent[name] for name in ("code", "language", "run_timeout", "stdin", "files", "fetch_files")} == {
        "code": "print('hi')",
        "language": "python",
        "run_timeout": 2.0,
        "stdin": "in",
        "files": {"a": "/w=="},
        "fetch_files": ["o"],
    }


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (to_http({"status": "SandboxError", "message": "no runner"}), "the server failed: no runner"),
        (to_http({"status": "Success", "run_result": None}), "the server failed"),
        (to_http({"status": "Failed", "run_result": {**FINISHED, "status": "Error"}}), "the server failed"),
        (to_http({"status": "Success", "run_result": FINISHED, "files": {"o": "?"}}), "file 'o' is not base64"),
        (to_http({"status": "Fine"}), "an answer that is not a valid FusionResponse"),
        (to_http(b"<html>"), "an answer that is not a valid FusionResponse"),
        (to_http({"error": "too busy"}, "429 Too Many Requests"), "429: too busy"),
        (to_http(b"gateway", "502 Bad Gateway"), "502: gateway"),
        (to_http(b"", "307 Temporary Redirect", "location: http://127.0.0.1:1/\r\n"), "307"),
        (b"", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "RemoteProtocolError"),
    ],
)
def test_what_a_server_does_wrong_is_a_sandbox_error_and_nothing_is_sent_twice(answer: bytes, expected: str) -> None:
    server = Server(answer)
    with pytest.raises(SandboxError, match=expected):
        run_against(server)
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_yet_is_tried_again() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(to_http({"status": "Success", "run_result": FINISHED}))

    async def scene() -> None:
        client = HttpSandbox(f"http://127.0.0.1:{port}", dialect="sandbox_fusion")
        started = time.monotonic()
        with pytest.raises(SandboxError, match="ConnectError"):
            await client.run(Program(code="x"))
        assert time.monotonic() - started < 5.0
        waiting = asyncio.create_task(client.run(Program(code="x")))
        await asyncio.sleep(0.1)
        listening = await asyncio.start_server(server.take, "127.0.0.1", port)
        assert (await waiting).ok
        await client.close()
        with pytest.raises(SandboxError):
            await client.run(Program(code="x"))
        listening.close()

    asyncio.run(scene())
    assert len(server.requests) == 1


def test_the_token_comes_from_the_environment_and_shows_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxError, match="TURNWISE_SANDBOX_TOKEN"):
        HttpSandbox("http://127.0.0.1:1")
    monkeypatch.setenv("TURNWISE_SANDBOX_TOKEN", TOKEN)
    server = Server(to_http({"error": "no"}, "401 Unauthorized"))
    with pytest.raises(SandboxError) as raised:
        run_against(server)
    assert f"Bearer {TOKEN}".encode() in server.requests[0]
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://x", "http://user:secret@host", "http://", "http://x/?a=b"])
def test_urls_that_are_not_plain_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="sandbox url must be") as raised:
        HttpSandbox(url, dialect="sandbox_fusion")
    assert "secret" not in str(raised.value)
