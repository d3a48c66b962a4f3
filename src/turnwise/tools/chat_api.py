"""Queries a model behind an OpenAI-style API (vLLM, SGLang, llama.cpp and most services speak it), or behind an
Anthropic-style one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from turnwise.core.errors import ConfigError, EngineError, RequestRefused
from turnwise.core.messages import ToolCall
from turnwise.core.seeds import derive_seed, rng

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable with the key; a server without keys needs none."""
Dialect = Literal["openai", "anthropic"]
KEY_VARIABLES: dict[Dialect, str] = {"openai": KEY_VARIABLE, "anthropic": "ANTHROPIC_API_KEY"}
PATHS: dict[Dialect, str] = {"openai": "chat/completions", "anthropic": "messages"}
ANTHROPIC_VERSION = "2023-06-01"
TIMEOUT_S = 300.0
"""Seconds for one request, including the time that it waits in the server."""
CHECK_S = 10.0
"""Seconds for the request that checks whether a server is there."""
RETRIES_S = (1.0, 5.0, 20.0)
"""Pauses in seconds, half to one and a half times as long, before a request is repeated after the server was
unreachable, busy, or failed; longer where it says how long."""
MAX_WAIT_S = 60.0
"""Longest pause that a server may ask for."""
MAX_ANSWER_BYTES = 4 << 20
_BUSY = 429
_FAILED = 500
_NO_KEY = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What a model replied, and what that took."""

    text: str
    refusal: str = ""
    """Why it would not reply; empty if it did."""
    is_cut: bool = False
    """Whether `max_tokens` ended it."""
    prompt_tokens: int = 0
    """0 where the server does not say; so is `reply_tokens`."""
    reply_tokens: int = 0
    calls: tuple[ToolCall, ...] = ()
    """Tools that it calls, where the request offered some."""


class ChatApi:
    """Sends prompts to `POST URL/chat/completions`, or to `POST URL/messages` of an Anthropic-style API. Use it in one
    event loop only."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        max_tokens: int,
        seed: int,
        source: str = "--api",
        max_concurrent: int = 8,
        timeout_s: float = TIMEOUT_S,
        retries_s: tuple[float, ...] = RETRIES_S,
        dialect: Dialect = "openai",
    ) -> None:
        """`url` is the API's root, for example `http://127.0.0.1:8000/v1`; `source` is the option that sets it, for
        messages. Raises ConfigError if it is not a URL."""
        variable = KEY_VARIABLES[dialect]
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as problem:
            raise ConfigError(f"{source} {url!r} is not an address: {problem}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise ConfigError(
                f"{source} {parsed.copy_with(userinfo=b'')} must be http(s)://host/path; the key is read from "
                f"{variable}"
            )
        self._root, self._source = str(parsed).rstrip("/"), source
        self.url = f"{self._root}/{PATHS[dialect]}"
        self._dialect = dialect
        self._model, self._max_tokens = model, max_tokens
        self._seed = seed
        self._places = asyncio.Semaphore(max_concurrent)
        self._timeout_s, self._retries_s = timeout_s, retries_s
        key = os.environ.get(variable)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if dialect == "anthropic":
            headers = {"anthropic-version": ANTHROPIC_VERSION, **({"x-api-key": key} if key else {})}
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout_s)

    async def ask(self, prompt: str) -> str:
        """Return the reply to one prompt; equal prompts have equal seeds. Raises as `complete`."""
        seed = derive_seed(self._seed, "reply", prompt)
        return await self.complete([{"role": "user", "content": prompt}], max_tokens=self._max_tokens, seed=seed)

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, seed: int, **settings: Any
    ) -> str:
        """Return the text of the reply to a conversation. Raises as `reply`."""
        return (await self.reply(messages, max_tokens=max_tokens, seed=seed, **settings)).text

    async def reply(
        self, messages: Sequence[Mapping[str, Any]], *, max_tokens: int, seed: int, **settings: Any
    ) -> ChatReply:
        """Return the reply to a conversation; `settings` are further fields of the request. An Anthropic-style API
        takes no seed. Raises EngineError if the server returns none after several attempts, RequestRefused if it finds
        the request wrong."""
        body = {
            "model": self._model,
            "max_tokens": max_tokens,
            "messages": list(messages),
            **({} if self._dialect == "anthropic" else {"seed": seed % 2**31}),
            **settings,
        }
        for pause_s in (*self._retries_s, None):
            try:
                return await self._send(body)
            except _TryAgain as problem:
                if pause_s is None:
                    raise EngineError(f"{self.url} {problem}; is the server up?") from None
                # Requests that were refused together do not come back together.
                spread = 0.5 + rng("pause", seed, str(pause_s)).random()
                await asyncio.sleep(max(pause_s * spread, problem.wait_s))
        raise AssertionError("the last attempt either returns or raises")

    async def check(self) -> None:
        """Raise ConfigError with the remedy unless a server responds and accepts the key. Nothing is sampled."""
        try:
            async with asyncio.timeout(CHECK_S):
                response = await self._client.get(f"{self._root}/models")
        except (httpx.HTTPError, TimeoutError) as problem:
            raise ConfigError(
                f"{self._source}: no server answers at {self._root} ({type(problem).__name__}); start it, or change "
                "the address"
            ) from None
        if response.status_code in _NO_KEY:
            raise ConfigError(
                f"{self._source}: {self._root} refuses the request with status {response.status_code}; set "
                f"{KEY_VARIABLES[self._dialect]} to its key"
            )

    async def _send(self, body: dict[str, Any]) -> ChatReply:
        received = bytearray()
        try:
            async with (
                self._places,
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self.url, json=body) as response,
            ):
                async for chunk in response.aiter_bytes():
                    received += chunk
                    if len(received) > MAX_ANSWER_BYTES:
                        raise EngineError(
                            f"{self.url} sent an answer longer than {MAX_ANSWER_BYTES} bytes; ask for less"
                        )
        except (httpx.HTTPError, TimeoutError) as problem:
            raise _TryAgain(f"did not answer ({type(problem).__name__})") from None
        text = received.decode("utf-8", "replace")
        if response.status_code == _BUSY or response.status_code >= _FAILED:
            wait_s = _read_wait(response.headers.get("retry-after", ""))
            raise _TryAgain(f"answered {response.status_code}: {text[:300]}", wait_s)
        if response.is_error:
            raise RequestRefused(f"{self.url} answered {response.status_code}: {text[:300]}")
        try:
            return _READERS[self._dialect](text)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
            style = "an OpenAI-style API" if self._dialect == "openai" else "an Anthropic-style API"
            raise EngineError(f"{self.url} did not answer like {style}: {problem!r} in {text[:300]}") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class _TryAgain(Exception):
    """A failure that may not recur after `wait_s` seconds, as the server says."""

    def __init__(self, text: str, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.wait_s = wait_s


def _read_wait(header: str) -> float:
    """The seconds of a header Retry-After, at most `MAX_WAIT_S`; 0 for a date, and without one."""
    return min(float(header), MAX_WAIT_S) if header.strip().isdigit() else 0.0


def read_completion(text: str) -> ChatReply:
    """Return the reply in a chat completion; its text is "" where the message has none. Raises ValueError, KeyError,
    IndexError, TypeError or AttributeError if it is not a chat completion."""
    answer = json.loads(text)
    choice = answer["choices"][0]
    content, refusal = choice["message"]["content"], choice["message"].get("refusal")
    if content is not None and not isinstance(content, str):
        raise TypeError("a message whose content is not text")
    reason = choice.get("finish_reason")
    blocked = "its content filter ended the reply" if reason == "content_filter" else ""
    usage = answer.get("usage") or {}
    return ChatReply(
        text=content or "",
        refusal=str(refusal or blocked),
        is_cut=reason == "length",
        prompt_tokens=_read_count(usage, "prompt_tokens"),
        reply_tokens=_read_count(usage, "completion_tokens"),
        calls=tuple(_read_call(call) for call in choice["message"].get("tool_calls") or ()),
    )


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    """A call of a chat completion; arguments that are no text become their JSON."""
    name, arguments = call["function"]["name"], call["function"].get("arguments")
    if not isinstance(name, str):
        raise TypeError("a call whose name is not text")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(id=str(call.get("id") or ""), name=name, arguments=written)


def read_message(text: str) -> ChatReply:
    """Return the reply in an Anthropic-style message. Raises as `read_completion`."""
    answer = json.loads(text)
    parts = [part["text"] for part in answer["content"] if part["type"] == "text"]
    usage = answer.get("usage") or {}
    return ChatReply(
        text="".join(parts),
        refusal="the server says that it refuses" if answer.get("stop_reason") == "refusal" else "",
        is_cut=answer.get("stop_reason") == "max_tokens",
        prompt_tokens=_read_count(usage, "input_tokens"),
        reply_tokens=_read_count(usage, "output_tokens"),
    )


def _read_count(usage: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 where the server gives none."""
    count = usage.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


_READERS = {"openai": read_completion, "anthropic": read_message}
