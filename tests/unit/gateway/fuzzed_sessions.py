"""Whole sessions of programs that behave oddly, and what would be trained on them.

A `Program` has several conversations by several protocols at once. It continues, branches, rewrites, repeats, hangs
up, spells echoed calls anew and drops reasoning. Its engine splits tokens as no tokenizer would, with log-probabilities
that occur once: what was tokenized again or belongs to another reply shows. `check_trained` compares the samples of the
session's trajectory with what the engine sampled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from fuzzed_requests import CUSTOM, FLAT, Recorder, send
from gateway_world import TOOLS, Served, build_tokenizer, build_trajectory, serve

from turnwise.batching.samples import list_samples
from turnwise.core.messages import Message, ToolCall, reply_message
from turnwise.core.protocols import Engine
from turnwise.core.types import (
    Completion,
    IntArray,
    SamplingParams,
    to_floats,
    to_ids,
)
from turnwise.core.types import Session as EngineSession
from turnwise.gateway.http import Application
from turnwise.gateway.sampling import Limits
from turnwise.gateway.session import Session
from turnwise.gateway.turns import to_turns
from turnwise.testing import make_group

PATHS = {"chat": "chat/completions", "messages": "messages", "responses": "responses"}
WORDS = ("add", "I add.", "Done.", "What is 17 ?", "35", " 18 ", "a = 17", "")


class Splitting(Recorder):
    """Samples what a script says, in other tokens than the tokenizer's, with log-probabilities that occur once."""

    def __init__(self, engine: Engine, random: Random) -> None:
        super().__init__(engine)
        self._random = random
        self._vocabulary = build_tokenizer().get_vocab()
        self._texts = {index: text for text, index in self._vocabulary.items()}
        self._special = set(build_tokenizer().all_special_ids) | set(build_tokenizer().added_tokens_decoder)

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: EngineSession) -> Completion:
        for _ in range(self._random.choice((0, 1, 3))):
            await asyncio.sleep(0)
        sampled = await self._engine.generate(prompt_ids, params, session=session)
        ids = [piece for token in sampled.token_ids.tolist() for piece in self._split(token)][: params.max_tokens]
        noise = [-self._random.random() for _ in ids]
        completion = replace(sampled, token_ids=to_ids(ids), logprobs=to_floats(np.array(noise)))
        self.sampled.setdefault(session.group, []).append((prompt_ids, completion))
        return completion

    def _split(self, token: int) -> list[int]:
        text = self._texts[token]
        at = self._random.randrange(1, len(text)) if len(text) > 1 and self._random.random() < 0.5 else 0
        pieces = [self._vocabulary.get(piece) for piece in (text[:at], text[at:])] if at else [None]
        return [token] if token in self._special or None in pieces else [piece for piece in pieces if piece is not None]


def make_script(random: Random) -> Callable[[str], Message | str]:
    """Return a policy that says anything: calls, several at once, thoughts, nothing, and what cannot be called."""

    def reply(prompt: str) -> Message | str:
        kind = random.randrange(8)
        thought = random.choice((None, "I add.", "Done. Done."))
        if kind < 4:
            numbers = [{"a": random.randrange(50), "b": random.randrange(50)} for _ in range(random.choice((1, 1, 2)))]
            calls = [ToolCall(id=f"call_{k}", name="add", arguments=json.dumps(n)) for k, n in enumerate(numbers)]
            return reply_message(random.choice(WORDS), reasoning=thought, tool_calls=tuple(calls))
        if kind == 4:
            return random.choice(("<tool_call> add a 17 </tool_call>", "<tool_call> take a = 1 </tool_call>", "35 <"))
        return reply_message(random.choice(WORDS), reasoning=thought)

    return reply


@dataclass(slots=True)
class Talk:
    """One conversation, as its protocol writes it."""

    protocol: str
    said: list[Any] = field(default_factory=list)
    """Messages or items, without the latest reply."""
    reply: Any = None
    """The latest answer, whole; None if there is none."""


class Program:
    """Plays one session."""

    def __init__(self, served: Served, random: Random) -> None:
        self._random, self._application = random, Application(served.gateway)
        self.access = served.gateway.open()
        self.session: Session = served.gateway.sessions[self.access.name]
        self._talks: list[Talk] = []
        self._sent: list[tuple[str, bytes]] = []
        self.received: set[str] = set()
        """Ids of the replies that came whole."""
        self.num_requests = 0

    async def play(self, num_steps: int) -> None:
        """Take so many steps, some of them two at once; then let what is sampled for nobody end."""
        for _ in range(num_steps):
            both = [self._step() for _ in range(self._random.choice((1, 1, 1, 2)))]
            await asyncio.gather(*both)
        await asyncio.gather(*self.session.tasks)

    async def _step(self) -> None:
        random = self._random
        if self._sent and random.random() < 0.15:  # the same bytes again
            await self._post(*random.choice(self._sent))
            return
        known = [talk for talk in self._talks if talk.reply is not None]
        fresh = not known or random.random() < 0.25
        talk = (
            open_talk(random) if fresh else self._go_on(random.choice(known[-1:] if random.random() < 0.7 else known))
        )
        options, named = write_options(talk.protocol, random), False
        if not fresh and talk.protocol != "chat" and random.random() < 0.3:
            options, named = {**options, **self._name_reply(talk)}, True
        asked = {**options, **write_talk(talk, is_named=named)}
        answer = await self._post(PATHS[talk.protocol], json.dumps(asked).encode())
        if answer is not None:
            self._talks.append(replace(talk, reply=answer))

    def _go_on(self, before: Talk) -> Talk:
        """Return a conversation with one more question or result; several may follow one reply."""
        random, said = self._random, [*before.said, *write_echo(before, self._random)]
        said += write_next(before, random)
        if random.random() < 0.1:
            rewrite(said, random)
        return Talk(before.protocol, said)

    def _name_reply(self, talk: Talk) -> dict[str, Any]:
        """Return the field that names the reply before the latest messages."""
        issued = talk_reply_id(self._talks, talk)
        if talk.protocol == "responses":
            return {"previous_response_id": issued}
        return {"thread": {"type": "continue", "previous_message_id": issued}}

    async def _post(self, path: str, body: bytes) -> Any:
        """Send a request, and leave now and then; returns the answer if it came whole."""
        self.num_requests += 1
        self._sent = [*self._sent[-5:], (path, body)]
        leaves_after = self._random.choice((None,) * 12 + (-1, 0, 1, 2))
        headers = {"authorization": f"Bearer {self.access.key}"}
        answer = await send(self._application, f"/v1/{path}", body, headers, leaves_after=leaves_after)
        if leaves_after is not None or answer.status != 200:
            assert answer.status in (0, 200, 400, 404), answer
            return None
        text = answer.body.decode()
        if not text.startswith("{"):
            last = text.rstrip().rpartition("data: ")[2]
            return self._note(json.loads(last)["response"]) if path == "responses" else None
        return self._note(json.loads(text))

    def _note(self, answer: Any) -> Any:
        self.received.add(answer["id"])
        return answer


def open_talk(random: Random) -> Talk:
    """Return a new conversation; now and then with the first messages of another one."""
    protocol = random.choice(list(PATHS))
    asked = {"role": "user", "content": f"What is {random.randrange(4)} + 18 ?"}
    if protocol == "chat" and random.random() < 0.5:
        return Talk(protocol, [{"role": "system", "content": random.choice(WORDS[:2])}, asked])
    return Talk(protocol, [asked])


def write_options(protocol: str, random: Random) -> dict[str, Any]:
    """Return everything of a request but its conversation."""
    tools = {"chat": TOOLS, "messages": CUSTOM, "responses": FLAT}[protocol]
    options: dict[str, Any] = {"model": random.choice(("policy", "policy", "policy/worker")), "tools": tools}
    options |= {"stream": True} if random.random() < 0.3 else {}
    options |= {"max_tokens": random.choice((3, 50, 50))} if protocol == "messages" else {}
    options |= {"n": 2} if protocol == "chat" and random.random() < 0.1 else {}
    return options


def write_talk(talk: Talk, *, is_named: bool) -> dict[str, Any]:
    """Return the conversation of a request: what follows the last reply if that is named."""
    said = talk.said
    if is_named:
        ends = [at for at, each in enumerate(said) if each.get("role") == "assistant" or each.get("type") in MADE]
        said = said[max(ends) + 1 :]
    return {"input" if talk.protocol == "responses" else "messages": said}


MADE = ("function_call", "reasoning")


def talk_reply_id(talks: list[Talk], talk: Talk) -> str:
    """Return the id of the reply that a conversation goes on from."""
    before = [each for each in talks if each.reply is not None and each.said == talk.said[: len(each.said)]]
    return str(max(before, key=lambda each: len(each.said)).reply["id"]) if before else "resp_0"


def spell(arguments: str, random: Random) -> str:
    """Return a call's arguments in another spelling."""
    value = json.loads(arguments or "{}")
    items = sorted(value.items(), reverse=random.random() < 0.5)
    separators = random.choice(((",", ":"), (", ", ": "), (" , ", ":  ")))
    return json.dumps(dict(items), separators=separators, indent=random.choice((None, None, 2)))


def write_echo(talk: Talk, random: Random) -> list[Any]:
    """Return the latest reply as a client sends it back."""
    keeps = random.random() < 0.5
    if talk.protocol == "chat":
        message = dict(talk.reply["choices"][0]["message"])
        message = {key: value for key, value in message.items() if keeps or key != "reasoning_content"}
        calls = [
            {**call, "function": {**call["function"], "arguments": spell(call["function"]["arguments"], random)}}
            for call in message.pop("tool_calls", [])
        ]
        content = message["content"]
        parts: list[Any] = [[{"type": "text", "text": content}]] if content else ["", None, []]
        return [{**message, "content": random.choice([content, *parts]), **({"tool_calls": calls} if calls else {})}]
    if talk.protocol == "messages":
        blocks = [block for block in talk.reply["content"] if keeps or block["type"] != "thinking"]
        return [{"role": "assistant", "content": blocks}]
    items = []
    for item in talk.reply["output"]:
        if item["type"] == "function_call":
            item = {**item, "arguments": spell(item["arguments"], random)}
        if keeps or item["type"] != "reasoning":
            items.append(item if random.random() < 0.5 else {key: v for key, v in item.items() if key != "id"})
    return items


def write_next(talk: Talk, random: Random) -> list[Any]:
    """Return what a client says after the latest reply: the results of its calls, or a question."""
    result = str(random.randrange(3))
    asked = {"role": "user", "content": random.choice(("And 1 + 1 ?", "35 ?", "Why ?"))}
    if talk.protocol == "chat":
        calls = talk.reply["choices"][0]["message"].get("tool_calls", [])
        return [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls] or [asked]
    if talk.protocol == "messages":
        calls = [block for block in talk.reply["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": result} for call in calls]
        return [{"role": "user", "content": results}] if results else [asked]
    calls = [item for item in talk.reply["output"] if item["type"] == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": result} for call in calls]
    return [*outputs] if outputs else [asked]


def rewrite(said: list[Any], random: Random) -> None:
    """Change an earlier text."""
    texts = [at for at, each in enumerate(said) if isinstance(each.get("content"), str) and each["content"]]
    if texts:
        at = random.choice(texts)
        said[at] = {**said[at], "content": said[at]["content"] + "!"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a session would train."""

    sampled: int
    trained: int
    undelivered: int
    samples: int


def check_trained(engine: Recorder, session: Session, received: set[str]) -> Trained:
    """Compare the samples of a session's trajectory with what its engine sampled: every reply that somebody received
    trains once, on the prompt that it was sampled from, with its ids and log-probabilities; nothing else trains."""
    trajectory = build_trajectory(to_turns(session.forest.replies))
    samples = list_samples([make_group(trajectory)])
    sampled = engine.sampled.get(session.name, [])
    by_logprobs = {completion.logprobs.tobytes(): (prompt, completion) for prompt, completion in sampled}
    assert len(by_logprobs) == len(sampled)
    found: set[bytes] = set()
    for sample in samples:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], sample.loss_mask.astype(np.int8), [0]])))
        for start, end in edges.reshape(-1, 2):
            key = sample.behavior_logprobs[start:end].tobytes()
            assert key not in found, "a reply trains twice"
            assert key in by_logprobs, "log-probabilities that nothing was sampled with"
            found.add(key)
            prompt, completion = by_logprobs[key]
            assert sample.token_ids[:start].tolist() == prompt.tolist(), "another prompt than the engine's"
            assert sample.token_ids[start:end].tolist() == completion.token_ids.tolist(), "other tokens than sampled"
    delivered = [node for node in session.forest.replies if node.is_delivered]
    assert found == {node.record.completion.logprobs.tobytes() for node in delivered}
    for issued in received:
        node = session.find_reply(issued)
        assert node is not None, issued
        assert node.is_delivered, "a reply that came whole does not train"
    counts = [
        sum(len(node.record.completion.token_ids) for node in nodes) for nodes in (delivered, session.undelivered)
    ]
    whole = sum(len(completion.token_ids) for _, completion in sampled)
    assert sum(counts) == whole, "a sampled token is in no turn"
    return Trained(sampled=whole, trained=counts[0], undelivered=counts[1], samples=len(samples))


async def play_sessions(num_sessions: int, random: Random) -> dict[str, int]:
    """Play sessions and check each; returns what happened in all of them."""
    served = serve(
        make_script(random),
        wrap=lambda engine: Splitting(engine, random),
        limits=Limits(max_context=20_000, max_reply_tokens=400),
    )
    engine: Any = served.policy.engine
    total: dict[str, int] = {"sessions": num_sessions, "requests": 0}
    for _ in range(num_sessions):
        program = Program(served, random)
        await program.play(random.randrange(3, 12))
        trained = check_trained(engine, program.session, program.received)
        told = {"sampled": trained.sampled, "trained": trained.trained, "undelivered": trained.undelivered}
        told |= {"samples": trained.samples, "requests": program.num_requests}
        for key, count in (*told.items(), *program.session.counts.items()):
            total[key] = total.get(key, 0) + count
        await served.gateway.end(program.access.name)
        engine.sampled.clear()
        served.engine.requests.clear()
    return total
