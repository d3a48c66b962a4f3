"""A gateway over a scripted policy that adds numbers with a tool, and a client that speaks to it without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx
from transformers import PreTrainedTokenizerBase

from turnwise.core.messages import Message, ToolCall, reply_message
from turnwise.core.protocols import Renderer
from turnwise.core.types import IntArray, Scored, StopReason, Trajectory, TrajectoryId
from turnwise.engines.scripted import ScriptedEngine
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.http import Application
from turnwise.gateway.sampling import Limits, SamplingRule
from turnwise.gateway.session import Policy
from turnwise.gateway.turns import Told
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.tokenizer import train_tokenizer

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS: Any = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}]
QUESTION = {"role": "user", "content": "What is 17 + 18 ?"}

Reply = Callable[[str], Message | str]


def add_up(prompt: str) -> Message:
    """Call `add` with the numbers of the question; then answer with its result."""
    results = re.findall(r"<tool_response>\s*(\d+)", prompt)
    if results:
        return reply_message(f"<answer> {results[-1]} </answer>", reasoning="Done.")
    numbers = re.findall(r"(\d+) \+ (\d+)", prompt)
    a, b = map(int, numbers[-1]) if numbers else (0, 0)
    call = ToolCall(id="call_0", name="add", arguments=json.dumps({"a": a, "b": b}))
    return reply_message("", reasoning="I add.", tool_calls=(call,))


@cache
def build_renderer() -> CallsRenderer:
    """The renderer."""
    return CallsRenderer(build_tokenizer())


@cache
def build_tokenizer() -> PreTrainedTokenizerBase:
    """The tokenizer of the renderer."""
    texts = ["add a = 17 b = 18", "What is 17 + 18 ? 35", "I add. Done."] * 40
    return train_tokenizer(texts, vocab_size=400, special_tokens=CALLS_FORMAT.special_tokens)


class Served:
    """A gateway, its engine, and clients for it."""

    def __init__(self, reply: Reply, limits: Limits | None, options: Any) -> None:
        renderer: Renderer = options.pop("renderer", None) or build_renderer()
        tokenizer = options.pop("tokenizer", None) or build_tokenizer()

        def decode(ids: Any) -> str:
            return str(tokenizer.decode(list(ids)))

        def script(prompt: IntArray) -> Message | str:
            return reply(decode(prompt))

        self.engine = ScriptedEngine(renderer, script)
        self.policy = Policy(
            engine=options.pop("wrap", lambda engine: engine)(self.engine),
            renderer=renderer,
            encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
            decode=decode,
            vocab_size=len(tokenizer),
            longest_token=max(map(len, tokenizer.get_vocab())),
        )
        limits = limits or Limits(max_context=1000, max_reply_tokens=100)
        rule = options.pop("rule", SamplingRule())
        self.gateway = Gateway(self.policy, limits, rule, **options)

    def client(self, key: str | None = None, path: str = "") -> httpx.AsyncClient:
        """A client of a session by key and path."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        transport = httpx.ASGITransport(app=Application(self.gateway))  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1{path}", headers=headers)

    def open(self, **options: Any) -> httpx.AsyncClient:
        """A client of a new session."""
        access = self.gateway.open(**options)
        return self.client(access.key, access.path)


def serve(reply: Reply = add_up, *, limits: Limits | None = None, **options: Any) -> Served:
    """A gateway whose policy replies to a prompt by `reply`. `wrap` is put around its engine; `renderer` and
    `tokenizer` take the place of its own; further options are the gateway's."""
    return Served(reply, limits, options)


def build_trajectory(told: Told) -> Trajectory:
    """The trajectory of a session's turns, with the reward 1."""
    return Trajectory(
        id=TrajectoryId(draw=0, member=0),
        task_id="fuzz",
        turns=tuple(told.turns),
        stop=StopReason.DONE,
        reward=Scored(total=1.0),
        conversations=tuple(told.openings),
    )
