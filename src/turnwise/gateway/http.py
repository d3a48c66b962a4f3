"""The gateway over HTTP, as an ASGI application: routes, keys, limits of a body, event streams, clients that leave."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

from turnwise.gateway.exposition import wants_text, write_exposition
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.protocols import chat, completions, messages, responses
from turnwise.gateway.protocols.call import Call, Reply
from turnwise.gateway.protocols.pictures import PictureReader
from turnwise.gateway.protocols.writer import Writer
from turnwise.gateway.refusals import Refusal
from turnwise.gateway.session import Exchange, Policy, Session, end_unsampled

MAX_BODY_BYTES = 10 * 2**20
MAX_SEEN_BODY_BYTES = 32 * 2**20
"""The same where the policy sees: a client sends every picture of a conversation with each request."""
LOCAL_NAMES = ("127.0.0.1", "localhost")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WRITERS: Mapping[str, tuple[Writer, str]] = {
    "chat/completions": (chat, "chatcmpl"),
    "completions": (completions, "cmpl"),
    "responses": (responses, "resp"),
    "messages": (messages, "msg"),
    "messages/count_tokens": (messages, "msg"),
}
"""The protocol of each path, and how the ids of its replies begin."""


class Application:
    """Answers requests. Nothing it does ends the server."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = _Request(scope, receive, send)
        writer: Writer = chat
        try:
            session, path = _split_path(request.path)
            writer = WRITERS.get(path, (chat, ""))[0]
            _admit(request)
            await self._route(request, session, path)
        except Refusal as refusal:
            await request.refuse(writer, refusal)
        except ConnectionError:
            pass  # the client is gone
        except Exception:
            broken = "the server failed at this request; its log says how"
            await request.refuse(writer, Refusal(broken, status=500, code="internal_error"))
            raise  # for the log

    async def _route(self, request: _Request, session: str | None, path: str) -> None:
        method = request.method
        if path in WRITERS and method == "POST":
            await self._answer(request, session, path)
        elif method in ("GET", "HEAD") and path == "":
            name = {"name": "turnwise", "model": self._gateway.policy.model}
            await request.send_json(name if session is None else self._find(request, session).describe())
        elif method == "GET" and path.partition("/")[0] == "models":
            policy = self._gateway.policy if session is None else self._find(request, session).policy
            await request.send_json(_list_models(policy, path.partition("/")[2]))
        elif method == "GET" and path == "health":
            await request.send_json({"status": "ok"})
        elif method == "GET" and path == "metrics" and session is None:
            counts, seconds = self._gateway.count(), self._gateway.measure()
            if wants_text(request.headers.get("accept")):
                await request.send_text(write_exposition(counts, seconds))
            else:
                await request.send_json({**counts, "seconds": seconds})
        elif method in ("GET", "DELETE") and path.partition("/")[0] == "responses":
            await request.send_json(self._read_stored(request, session, path.partition("/")[2]))
        elif method == "POST" and path == "sessions" and session is None:
            self._gateway.check_opener(request.key)
            body = _read_json(await request.read_body() or b"{}")
            access = self._gateway.open(name=_read_name(body))
            await request.send_json({"name": access.name, "key": access.key, "path": access.path}, status=201)
        elif method == "POST" and path == "reward" and session is not None:
            found = self._find(request, session)
            await request.send_json(self._gateway.reward(found, _read_json(await request.read_body())))
        elif method == "DELETE" and path == "" and session is not None:
            found = self._find(request, session)
            await self._gateway.end(found.name)
            await request.send_json(found.describe())
        else:
            raise Refusal(f"{method} {request.path[:100]} is not served here", status=404, code="not_found")

    def _find(self, request: _Request, session: str | None) -> Session:
        return self._gateway.find(session, request.key)

    def _read_stored(self, request: _Request, session: str | None, issued: str) -> Mapping[str, Any]:
        stored = self._find(request, session).stored
        if request.method == "DELETE":
            return stored.delete(issued)
        if request.asks.get("stream") == ["true"]:
            raise Refusal("a stored reply is not streamed; leave it out", field="stream", code="unsupported")
        return stored.read(issued)

    async def _answer(self, request: _Request, session_name: str | None, path: str) -> None:
        writer, kind = WRITERS[path]
        session = self._find(request, session_name)
        kept = session.policy.pictures
        body = await request.read_body(MAX_BODY_BYTES if kept is None else MAX_SEEN_BODY_BYTES)
        value = _read_json(body)
        pictures = None if kept is None else PictureReader(kept)
        if path == "messages/count_tokens":
            await request.send_json({"input_tokens": session.count_tokens(messages.read_counted(value, pictures))})
            return
        call: Call = writer.read(value, pictures)
        self._gateway.check_room()
        exchange = session.begin(call, kind, body, is_retry=request.is_retry)
        if path == "responses" and value.get("store") is not False:
            _keep(session, exchange, call)
        exchange.num_listeners += 1
        gone = asyncio.ensure_future(request.wait_for_hang_up())
        try:
            if await _wait(exchange, gone, until_begun=call.wants_stream) and (
                await _write(request, writer, call, exchange, gone)
            ):
                session.deliver(exchange)
        finally:
            exchange.num_listeners -= 1
            gone.cancel()


def _keep(session: Session, exchange: Exchange, call: Call) -> None:
    """Keep the answer of an exchange for those who ask for it by its id, as soon as it is known."""

    def keep(task: asyncio.Task[list[Reply]]) -> None:
        if not task.cancelled() and task.exception() is None:
            session.stored.keep(responses.write(call, task.result(), exchange.created))

    exchange.task.add_done_callback(keep)


async def _wait(exchange: Exchange, gone: asyncio.Future[None], *, until_begun: bool) -> bool:
    """Wait for the replies of an exchange, or for the first text of one. Returns False if the client hangs up
    meanwhile: sampling goes on without it. Raises Refusal if there is no reply."""
    begun = asyncio.ensure_future(exchange.begun.wait())
    waiting: set[asyncio.Future[Any]] = {exchange.task, gone, *([begun] if until_begun else [])}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        begun.cancel()
    if exchange.task.done():
        if exchange.task.cancelled():
            raise end_unsampled()
        exchange.task.result()
        return True
    return exchange.begun.is_set() and until_begun


async def _write(request: _Request, writer: Writer, call: Call, exchange: Exchange, gone: asyncio.Future[None]) -> bool:
    """Send an answer. Returns whether the client stayed to its end, and it came whole."""
    if not call.wants_stream:
        await request.send_json(writer.write(call, exchange.task.result(), exchange.created))
        return not gone.done()
    await request.start(200, "text/event-stream; charset=utf-8", {"cache-control": "no-cache"})
    failure: Refusal | None = None
    try:
        async for event in writer.write_events(call, exchange.answers, exchange.created):
            await asyncio.sleep(0)  # lets the server notice a client that hung up
            if gone.done():
                return False
            await request.send_event(*event)
    except Refusal as refusal:
        failure = refusal
        await request.send_event(*writer.write_failure(refusal))
    await request.end()
    return failure is None and not gone.done()


class _Request:
    """One request, and the means to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method, self.path = str(scope["method"]), str(scope["path"])
        self.headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        self.asks = parse_qs(bytes(scope.get("query_string", b"")).decode("latin-1"))
        """What the URL asks for after its question mark."""
        self._receive, self._send = receive, send
        self._has_started = False

    @property
    def key(self) -> str | None:
        """The key that the client sent; None if it sent none."""
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else self.headers.get("x-api-key")

    @property
    def is_retry(self) -> bool:
        """Whether the client says that it asks again."""
        return self.headers.get("x-stainless-retry-count", "0").strip() not in ("", "0")

    async def read_body(self, most: int = MAX_BODY_BYTES) -> bytes:
        """Return the body, of at most so many bytes. Raises Refusal for one that is too large, or compressed."""
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise Refusal(
                f"the body is encoded as {coding[:20]!r}; send it as it is", status=415, field="content-encoding"
            )
        body, more = bytearray(), True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                raise Refusal(f"the request has more than {most:,} bytes", status=413, code="request_too_large")
        return bytes(body)

    async def wait_for_hang_up(self) -> None:
        """Return when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        """Send status and headers."""
        self._has_started = True
        pairs = {"content-type": content_type, **(headers or {})}
        encoded = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in pairs.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def send_part(self, text: str) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": text.encode("utf-8", "replace"), "more_body": True})

    async def send_event(self, name: str | None, data: Any) -> None:
        """Send a server-sent event."""
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        await self.send_part(f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n")

    async def end(self) -> None:
        """End the body."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send_json(
        self, value: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole answer."""
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        await self.start(status, "application/json", {"content-length": str(len(body)), **(headers or {})})
        sent = b"" if self.method == "HEAD" else body
        await self._send({"type": "http.response.body", "body": sent, "more_body": False})

    async def send_text(self, text: str) -> None:
        """Send a whole answer that is text."""
        await self.start(200, "text/plain; version=0.0.4; charset=utf-8")
        await self.send_part(text)
        await self.end()

    async def refuse(self, writer: Writer, refusal: Refusal) -> None:
        """Send a refusal, saying whether the same request may be repeated."""
        if self._has_started:
            return
        wait_s = refusal.retry_after_s
        headers = {"x-should-retry": "false" if wait_s is None else "true"}
        if wait_s is not None:
            headers["retry-after"] = f"{wait_s:g}"
        await self.send_json(writer.write_refusal(refusal), status=refusal.status, headers=headers)


def _list_models(policy: Policy, name: str) -> dict[str, Any]:
    """Return the model of a policy, or the one with a name. Raises Refusal for another."""
    model = policy.model
    listed = {"id": model, "object": "model", "type": "model", "created": 0, "owned_by": "turnwise"}
    listed |= {"display_name": model, "created_at": "1970-01-01T00:00:00Z"}
    if not name:
        return {"object": "list", "data": [listed], "has_more": False, "first_id": model, "last_id": model}
    policy.read_role(name)
    return {**listed, "id": name}


def _admit(request: _Request) -> None:
    """Refuse requests from web pages: a Host or an Origin with another name than this machine's."""
    origin = request.headers.get("origin")
    named = [f"//{request.headers.get('host', '')}", *([] if origin is None else [origin])]
    if any(_find_host(name) not in LOCAL_NAMES for name in named):
        raise Refusal("this server is for programs of its own machine", status=403, code="not_allowed")


def _find_host(url: str) -> str | None:
    """Return the host that a URL names; None if it names none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _split_path(path: str) -> tuple[str | None, str]:
    """Return the session and the rest of a path, without the version."""
    parts = [part for part in path.split("/") if part]
    session = None
    if len(parts) >= 2 and parts[0] == "sessions":
        session, parts = unquote(parts[1]), parts[2:]
    while parts[:1] == ["v1"]:  # twice where a client adds it to a base URL that has it
        parts = parts[1:]
    return session, "/".join(parts)


def _read_name(body: Mapping[str, Any]) -> str | None:
    name = body.get("name")
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= 100 and name.replace("-", "").isalnum()):
        raise Refusal("must be letters, digits and hyphens, 100 at most", field="name")
    return name


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _read_float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text[:60]} is no finite number")
    return value


def _read_json(body: bytes) -> Mapping[str, Any]:
    """Return the object of a body. Raises Refusal for what is no JSON object in UTF-8."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Refusal(
            f"the body is no UTF-8: byte {error.start} is {body[error.start]:#04x}", code="bad_json"
        ) from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_read_float)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal("the body has half a surrogate pair; send whole characters", code="bad_json") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the body is no JSON: {error}", code="bad_json") from None
    if not isinstance(value, dict):
        raise Refusal("the body must be a JSON object", code="bad_json")
    return value
