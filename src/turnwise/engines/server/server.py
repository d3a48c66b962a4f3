"""One server named by URL: calls with a deadline, and verification of the weights that it computes with."""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

import httpx

from turnwise.core.errors import EngineError
from turnwise.core.types import SamplingParams
from turnwise.engines.canary import WARM, Canary
from turnwise.engines.server.calls import Call, Dialect
from turnwise.models.checksums import find_difference
from turnwise.models.staging import Staged

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable that holds the key; a server without keys needs none."""
CONNECT_S = 10.0
"""Timeout in seconds of connecting, and of asking whether a server is available."""
MAX_ANSWER_BYTES = 64 << 20
UNIX = "unix:"
_AWAY = (429, 502, 503, 504)
Answer = TypeVar("Answer")


class ServerLost(EngineError):
    """A server does not answer, or lost its weights; another one may serve the request."""


class Server:
    """A client for one server. Belongs to the event loop that first uses it."""

    def __init__(self, url: str, dialect: Dialect, *, timeout_s: float) -> None:
        """`url` is `http(s)://host:port` or `unix:/path/of/socket`. Raises EngineError if it is not such a URL, or no
        server answers there."""
        self.name = url
        self.dialect = dialect
        self._timeout_s = timeout_s
        path = url.removeprefix(UNIX) if url.startswith(UNIX) else None
        self._root = "http://localhost" if path is not None else url.rstrip("/")
        key = os.environ.get(KEY_VARIABLE)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            # No proxy: servers to which weights are published are inside the cluster.
            with httpx.Client(transport=httpx.HTTPTransport(uds=path), headers=headers, timeout=CONNECT_S) as client:
                status = client.get(f"{self._root}/health").status_code
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise EngineError(
                f"no server answers at {url} ({type(error).__name__}); start it (see docs/engines.md for the command), "
                "or change engine.options.urls"
            ) from None
        if status in (401, 403):
            raise EngineError(f"{url} refuses the request with status {status}; set {KEY_VARIABLE} to its key")
        if status != 200:
            raise EngineError(f"{url} answers /health with status {status}; wait until it is ready")
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=path, limits=httpx.Limits(max_connections=None, max_keepalive_connections=None)
            ),
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
        )

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call and return its answer. Raises ServerLost if the server is away or too slow, EngineError if it
        refuses or its answer is malformed."""
        received = bytearray()
        try:
            async with self._client.stream("POST", self._root + call.path, json=call.body) as response:
                async for chunk in response.aiter_bytes():
                    received += chunk
                    if len(received) > MAX_ANSWER_BYTES:
                        raise EngineError(f"{self.name}{call.path} sent an answer longer than {MAX_ANSWER_BYTES} bytes")
        except httpx.ReadTimeout:
            raise ServerLost(f"{self.name}{call.path} did not answer within {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise ServerLost(f"{self.name}{call.path} did not answer ({type(error).__name__})") from None
        text = received.decode("utf-8", "replace")
        if response.status_code in _AWAY:
            raise ServerLost(f"{self.name}{call.path} answered {response.status_code}: {text[:300]}")
        if response.is_error:
            raise EngineError(f"{self.name}{call.path} answered {response.status_code}: {text[:300]}")
        try:
            return call.read(_parse(text))
        except EngineError as error:
            raise EngineError(f"{self.name}{call.path}: {error}") from None

    async def stage(self, staged: Staged, version: int) -> None:
        """Let the server read the weights, if it can, and compare what all its processes read with what was written.

        Raises EngineError naming the tensor that differs; nothing is loaded."""
        call = self.dialect.stage(str(staged.folder))
        if call is None:
            return
        for sums in await self.send(call):
            tensor = find_difference(staged.sums, sums)
            if tensor is not None:
                raise EngineError(
                    f"{self.name} read {tensor} with other values than the trainer wrote in version {version}"
                )

    async def commit(self, staged: Staged, canary: Canary, version: int) -> None:
        """Let the server load the weights, and verify that it samples with them. None of our requests may be open.

        Raises EngineError; the server must then not be sampled from before another `commit`."""
        for call in self.dialect.commit(str(staged.folder), str(version)):
            await self.send(call)
        scores = await self.send(self.dialect.score(canary.token_ids))
        canary.check_scores(scores, self.name)
        ask = SamplingParams(max_tokens=1, temperature=WARM)
        reply = await self.send(self.dialect.generate(f"canary-{version}", canary.token_ids, ask, str(version)))
        if reply.version != str(version):
            raise EngineError(
                f"{self.name} reports that it samples with weights {reply.version}, but was given {version}"
            )
        canary.check_sample(reply.token_ids[0], reply.logprobs[0], self.name)

    async def close(self) -> None:
        """Close the connections, which ends open requests."""
        await self._client.aclose()


def _parse(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        return text  # a one-word status, as SGLang's control routes answer
