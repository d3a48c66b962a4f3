"""One session: the calls of one program. Each is matched, sampled, committed and delivered; a retry gets its answer."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from turnwise.core.asking import ask_engine
from turnwise.core.episodes import ANY_REQUESTS, RequestRule
from turnwise.core.errors import EngineError, GrammarError, RenderError, boundary
from turnwise.core.messages import Message, TextPart, reply_message
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import Engine, Renderer, StreamingEngine
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Completion, FinishReason, Reward, SamplingParams, Scored, to_ids
from turnwise.core.types import Prompt as ShownPrompt
from turnwise.core.types import Session as EngineSession
from turnwise.gateway.delivery import Delivery, to_delivery
from turnwise.gateway.forest import Branches, Continues, Forest, Match, Node, Opens, Refuses
from turnwise.gateway.keys import digest, extend_chain, message_keys, root_key
from turnwise.gateway.protocols.answer import Answer
from turnwise.gateway.protocols.call import Call, Reply, TokenText
from turnwise.gateway.refusals import Refusal
from turnwise.gateway.sampling import (
    Encode,
    Limits,
    Prompt,
    Sampled,
    SamplingRule,
    build_params,
    build_prompt,
    check_length,
    find_room,
    name_grammar_field,
    open_instead,
    read_prompt,
)
from turnwise.gateway.settled import SettledText, Streaming
from turnwise.gateway.stored import StoredReplies
from turnwise.gateway.times import Times, Watch
from turnwise.rendering.images import find_pictures

Decode = Callable[[Sequence[int]], str]
Admitted = TypeVar("Admitted", bound=Match | None)
ROLE = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """What answers."""

    engine: Engine
    renderer: Renderer
    encode: Encode | None
    """Token ids of a text that is completed as it is; None if no text is."""
    decode: Decode
    """Text of token ids, special tokens included."""
    streaming: Streaming | None = None
    """How replies are told while they are sampled; None if they are told whole."""
    vocab_size: int | None = None
    """Number of token ids that a client may send; None if none are taken."""
    longest_token: int | None = None
    """Most characters of a text in one token, by which texts are refused that cannot fit, without reading them; None to
    read all."""
    model: str = "policy"
    """The name that clients ask for; `model/role` names the role that a conversation has in the program."""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """What answers in the conversations of some roles, by role; `engine` answers in all others."""

    @property
    def pictures(self) -> Pictures | None:
        """Where pictures of requests are kept; None if the policy reads text."""
        return find_pictures(self.renderer)

    def read_role(self, asked: str) -> str:
        """Return the role that a client names with the model, "" for none. Raises Refusal for another model."""
        role = asked.removeprefix(f"{self.model}/")
        if asked == self.model:
            return ""
        if role == asked or not ROLE.fullmatch(role):
            raise Refusal(
                f"{asked[:60]!r} is not served here; ask for {self.model!r}, or {self.model + '/role'!r} to name a "
                "role with letters, digits, hyphens and underscores",
                status=404,
                field="model",
                code="model_not_found",
            )
        return role


@dataclass(slots=True, eq=False)
class Exchange:
    """One call and its answer, which a retry may collect."""

    created: int = field(default_factory=lambda: int(time.time()))
    """When its request came, in Unix seconds."""
    num_listeners: int = 0
    is_delivered: bool = False
    answers: list[Answer] = field(default_factory=list)
    """The replies as they come; empty until the request has found its place."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when some of a reply's text is known."""
    task: asyncio.Task[list[Reply]] = field(init=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Place:
    match: Match
    prompt: Prompt
    params: SamplingParams
    conversation: str
    answer: Answer
    grammar_field: str | None = None
    """The field of the request that the grammar was built from."""
    watch: Watch = field(default_factory=Watch)


class Session:
    """The calls of one program. Sampling is concurrent; matching and committing never wait."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        limits: Limits,
        rule: SamplingRule,
        *,
        salt: bytes,
        seed: tuple[int | str, ...] = (),
        requests: RequestRule = ANY_REQUESTS,
        group: str | None = None,
    ) -> None:
        """`salt` makes issued ids unguessable. `seed` and the rule's determine every reply, with its messages. Sessions
        of one `group` begin alike; None for a group of its own."""
        self.name, self.forest = name, Forest(salt, requests)
        self.counts: Counter[str] = Counter()
        """Calls by what became of them, and tokens."""
        self.times = Times()
        self.num_waiting = 0
        """Replies that wait for others of this session."""
        self.reward: Reward | None = None
        self.rewards: dict[int, float] = {}
        """Rewards of single replies, by node."""
        self.refused: str | None = None
        """Why the first request was refused that rewrote its conversation; None if none was."""
        self.stored = StoredReplies()
        """What clients may ask for again by its id."""
        self.takes_rewards = True
        self.used = time.monotonic()
        self.is_over = False
        self._policy, self._limits, self._rule, self._seed = policy, limits, rule, seed
        self._exchanges: dict[bytes, Exchange] = {}
        self._begun: Counter[bytes] = Counter()
        self._open: set[asyncio.Task[list[Reply]]] = set()
        self._names: dict[str, tuple[Engine, EngineSession]] = {}
        self._group = group or name
        self._slots = asyncio.Semaphore(limits.max_concurrent)
        self._started = time.monotonic()

    @property
    def policy(self) -> Policy:
        """What answers."""
        return self._policy

    @property
    def tasks(self) -> list[asyncio.Task[list[Reply]]]:
        """What samples the calls that are being answered."""
        return list(self._open)

    @property
    def num_open(self) -> int:
        """Calls that are being answered."""
        return len(self._open)

    def begin(self, call: Call, kind: str, body: bytes, *, is_retry: bool = False) -> Exchange:
        """Begin to answer a call, or return the answer that a repeated one is owed. Raises Refusal.

        `kind` is how the ids of its replies begin. A call repeats another if its bytes are the same and the client says
        so (`is_retry`), or nobody received the other's answer: then the client gave up and asks again.
        """
        self.used = time.monotonic()
        if self.is_over:
            raise Refusal("the session is over; open another", status=403, code="session_over")
        key = digest(kind, body)
        known = self._exchanges.get(key)
        if known is not None and (is_retry or not (known.is_delivered or known.num_listeners)):
            self.counts["coalesced"] += 1
            return known
        self._check_limits(call)
        exchange = Exchange()
        exchange.task = asyncio.ensure_future(self._answer(exchange, call, kind))
        self._exchanges[key] = exchange
        self._open.add(exchange.task)

        def end(task: asyncio.Task[list[Reply]]) -> None:
            self._open.discard(task)
            if (task.cancelled() or task.exception() is not None) and self._exchanges.get(key) is exchange:
                del self._exchanges[key]  # the same call again is a new attempt

        exchange.task.add_done_callback(end)
        return exchange

    def deliver(self, exchange: Exchange) -> None:
        """Note that a client has received the whole answer."""
        exchange.is_delivered = True
        for reply in exchange.task.result():
            node = self.forest.find(reply.id)
            if node is not None:
                self.forest.deliver(node.index)

    def count_tokens(self, call: Call) -> int:
        """Return the number of tokens of a call's prompt. Raises Refusal."""
        call = self._complete(call)
        messages, after = self._resolve(call)
        match = self.forest.match(self._root(call), messages, after=after)
        return len(self._prompt(call, match, messages).token_ids)

    def find_reply(self, issued: str) -> Node | None:
        """Return the reply that has an id, or a call with it; None if there is none."""
        return self.forest.find(issued)

    def describe(self) -> dict[str, Any]:
        """Return the session's state as JSON values."""
        reward = self.reward.total if isinstance(self.reward, Scored) else None
        return {
            "name": self.name,
            "is_over": self.is_over,
            "reward": reward,
            "replies": self.forest.num_replies,
            "undelivered": len(self.undelivered),
            "counts": dict(sorted(self.counts.items())),
        }

    @property
    def undelivered(self) -> list[Node]:
        """Replies that no client is known to have received."""
        return [node for node in self.forest.replies if not node.is_delivered]

    def refuse_rewards(self) -> None:
        """Take no reward from now on."""
        self.takes_rewards = False

    async def close(self) -> None:
        """Take no more calls, end the open ones, and free the engine's sessions. A second call does nothing."""
        self.is_over = True
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        names, self._names = list(self._names.values()), {}
        for engine, name in names:
            await engine.release(name)

    def _check_limits(self, call: Call) -> None:
        limits, num_replies = self._limits, self.forest.num_replies + self.num_open
        if limits.timeout_s is not None and time.monotonic() - self._started > limits.timeout_s:
            raise Refusal(
                f"the session has lasted {limits.timeout_s:g} s, the most it may", status=403, code="time_limit"
            )
        if limits.max_replies is not None and num_replies + call.num_replies > limits.max_replies:
            raise Refusal(f"the session has {num_replies} replies of {limits.max_replies}; end it", code="reply_limit")

    def _root(self, call: Call) -> bytes:
        return root_key(call.tools, call.model, {} if call.prompt is None else {"raw": True})

    def _complete(self, call: Call) -> Call:
        """Return a call with the tools of the reply that it continues, if it leaves them out."""
        node = self.forest.find(call.previous) if call.previous is not None and call.keeps_tools else None
        return call if node is None else replace(call, tools=node.record.prompt.tools)

    def _resolve(self, call: Call) -> tuple[tuple[Message, ...], int | None]:
        """Return the whole conversation of a call, and the reply that it names. Raises Refusal for an unknown one."""
        if call.prompt is not None:
            text = call.prompt if isinstance(call.prompt, str) else " ".join(map(str, call.prompt))
            return (Message(role="user", content=(TextPart(text=text),)),), None
        if call.previous is None:
            return call.messages, None
        node = self.forest.find(call.previous)
        if node is None or not node.is_reply or self.stored.is_deleted(call.previous):
            stated = call.body.get("previous_response_id") is not None
            raise Refusal(
                f"{call.previous[:60]!r} is no reply of this session",
                status=404,
                field="previous_response_id" if stated else "thread.previous_message_id",
                code="previous_response_not_found",
            )
        path, new = self.forest.path(node.index), call.messages
        if new and new[0].role == "system":
            has_own = bool(path) and path[0].role == "system"
            if not has_own or path[0].text != new[0].text:
                return (new[0], *path[has_own:], *new[1:]), None  # other instructions: another conversation
            new = new[1:]
        return (*path, *new), node.index

    def _prompt(self, call: Call, match: Match, messages: Sequence[Message]) -> Prompt:
        if isinstance(match, Refuses):
            raise Refusal(match.problem, field=match.field)
        check_length(match, call.prompt, self._policy.longest_token, self._limits.max_context)
        if call.prompt is not None:
            ids = to_ids(read_prompt(call.prompt, self._policy.encode, self._policy.vocab_size))
            return Prompt(parent=None, token_ids=ids, context_ids=ids, messages=tuple(messages), tools=())
        with boundary(RenderError, "the messages cannot be rendered"):
            return build_prompt(self.forest, self._policy.renderer, match, call.tools)

    def _choose(self, call: Call, kind: str, messages: Sequence[Message], after: int | None, number: int) -> _Place:
        """Match a call, claim its place and build its prompt. Raises Refusal."""
        root = self._root(call)
        match = self._admit(self.forest.match(root, messages, after=after))
        if number and isinstance(match, Opens | Branches):  # a further reply to the same request
            at = match.after if isinstance(match, Branches) else None
            tail = match.tail if isinstance(match, Branches) else match.messages
            match = Branches(after=at, tail=tail, reason="resampled", beside=getattr(match, "beside", None))
        try:
            prompt = self._prompt(call, match, messages)
        except RenderError as cause:
            if isinstance(match, Opens):
                raise Refusal(str(cause), field="messages", code="unrenderable") from cause
            self._admit(self.forest.refuse_rewrite("unrenderable", str(cause)))
            match = open_instead(messages, cause)
            try:
                prompt = self._prompt(call, match, messages)
            except RenderError:
                raise Refusal(str(cause), field="messages", code="unrenderable") from cause
        nodes = self.forest.path_nodes(prompt.parent)
        if prompt.parent is not None and self._limits.ends_when_cut and _is_cut(self.forest.nodes[prompt.parent]):
            raise Refusal("the last reply reached its limit of tokens, which ends the conversation", code="reply_cut")
        room = find_room(self._limits, call, len(prompt.token_ids), sum(node.is_reply for node in nodes))
        chain = root
        for key in message_keys(messages):
            chain = extend_chain(chain, key)
        self._begun[chain] += 1
        seed = derive_seed(self._rule.seed, *self._seed, "gateway", chain.hex(), self._begun[chain])
        params = build_params(self._rule, call, self._policy.renderer, room=room, seed=seed, number=number)
        self.forest.take(match)
        count = sum(self._begun.values())
        name = f"{self.name}/{count}"
        if isinstance(match, Continues):
            name = self.forest.nodes[match.after].record.conversation
        answer = Answer(
            id=self.forest.make_id(kind, count),
            num_prompt_tokens=len(prompt.token_ids),
            num_known_tokens=len(prompt.token_ids) - len(prompt.context_ids),
        )
        return _Place(
            match=match,
            prompt=prompt,
            params=params,
            conversation=name,
            answer=answer,
            grammar_field=name_grammar_field(call),
        )

    def _admit(self, match: Admitted) -> Admitted:
        """Return a match that may be answered. Raises Refusal for another, noting one that rewrites a conversation."""
        if isinstance(match, Refuses):
            if match.reason is not None:
                self.counts[f"refused/{match.reason}"] += 1
                self.refused = self.refused or match.problem
            raise Refusal(match.problem, field=match.field, code=match.reason or "invalid_request")
        return match

    async def _answer(self, exchange: Exchange, call: Call, kind: str) -> list[Reply]:
        role = self._policy.read_role(call.model)
        call = self._complete(call)
        messages, after = self._resolve(call)
        root = self._root(call)
        self.forest.acknowledge(root, messages, after)
        places: list[_Place] = []
        try:
            for number in range(call.num_replies):
                places.append(self._choose(call, kind, messages, after, number))
            exchange.answers = [place.answer for place in places]
            started = time.perf_counter()
            completions = await gather_all([self._sample(exchange, call, place, role) for place in places])
        except BaseException as error:
            cause = error if isinstance(error, Refusal) else end_unsampled()
            for place in places:
                self.forest.release(place.match)
                place.answer.fail(cause)
            raise
        return [
            self._commit(call, root, messages, place, completion, started, role)
            for place, completion in zip(places, completions, strict=True)
        ]

    async def _sample(self, exchange: Exchange, call: Call, place: _Place, role: str) -> Completion:
        engine, name = self._names.setdefault(
            place.conversation,
            (self._policy.engines.get(role, self._policy.engine), EngineSession(self._group, place.conversation)),
        )
        prompt = to_shown(place.prompt)
        try:
            async with self._take_turn(place.watch):
                with boundary(EngineError, f"the engine failed in session {name}"):
                    told = self._read_settled(call, place)
                    if told is None or not isinstance(engine, StreamingEngine):
                        return await ask_engine(engine, prompt, place.params, name)

                    def receive(token_ids: Sequence[int]) -> None:
                        place.watch.hear()
                        with boundary(EngineError, "a reply's text cannot be read"):
                            place.answer.add(told.take(token_ids))
                        if place.answer.pieces:
                            exchange.begun.set()

                    return await engine.stream(prompt.token_ids, place.params, session=name, receive=receive)
        except GrammarError as error:
            raise Refusal(str(error), field=place.grammar_field, code="unsupported") from error
        except EngineError as error:
            self.counts["failed"] += 1
            raise Refusal(str(error), status=500, code="engine_error") from error

    def _read_settled(self, call: Call, place: _Place) -> SettledText | None:
        """Return the reader of a reply that is told while it is sampled; None if it is told whole."""
        streaming = self._policy.streaming
        if place.prompt.images:  # `StreamingEngine.stream` takes text
            return None
        if streaming is None or not call.wants_stream or call.wants_logprobs or call.prompt is not None:
            return None
        return streaming.read(place.prompt.token_ids.tolist(), (*self._policy.renderer.stop, *call.stop))

    @asynccontextmanager
    async def _take_turn(self, watch: Watch) -> AsyncIterator[None]:
        """Wait until fewer replies than may be are sampled at once, in the order in which they were asked for."""
        self.num_waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.num_waiting -= 1
        try:
            watch.begin()
            yield
            watch.hear()  # at the latest
        finally:
            self._slots.release()

    def _commit(
        self,
        call: Call,
        root: bytes,
        messages: Sequence[Message],
        place: _Place,
        completion: Completion,
        began: float,
        role: str,
    ) -> Reply:
        prompt = place.prompt
        parsed = self._parse(call, prompt, completion)
        is_cut = completion.finish_reason is FinishReason.LENGTH
        delivery = to_delivery(
            parsed, is_cut=is_cut, tools={tool.name for tool in call.tools}, max_calls=call.max_calls, stop=call.stop
        )
        node = self.forest.commit(root, messages, place.match, delivery.message)
        self.forest.name(place.answer.id, node.index)
        issued = [made.id for made in node.message.tool_calls]
        made_by_id = {made.id: made for made in parsed.tool_calls}
        node.record = Sampled(
            prompt=prompt,
            completion=completion,
            parsed=parsed,
            calls=dict(zip(issued, (made_by_id[made.id] for made in delivery.message.tool_calls), strict=True)),
            match=place.match,
            conversation=place.conversation,
            role=role,
            began=began,
            ended=time.perf_counter(),
            watch=place.watch,
        )
        self._count(place.match, prompt, completion)
        self._note_times(node.record)
        reply = self._to_reply(call, place.answer, node, delivery, completion)
        place.answer.finish(reply)
        return reply

    def _parse(self, call: Call, prompt: Prompt, completion: Completion) -> Message:
        if call.prompt is None:
            return self._policy.renderer.parse(prompt.token_ids, completion.token_ids, call.tools)
        ends = set(self._policy.renderer.stop_token_ids)
        return reply_message(
            self._policy.decode([token for token in completion.token_ids.tolist() if token not in ends])
        )

    def _to_reply(self, call: Call, answer: Answer, node: Node, delivery: Delivery, completion: Completion) -> Reply:
        decode = self._policy.decode
        tokens = zip(completion.token_ids.tolist(), completion.logprobs.tolist(), strict=True)
        return Reply(
            id=answer.id,
            message=node.message,
            finish=delivery.finish,
            stop_text=delivery.stop_text,
            num_prompt_tokens=answer.num_prompt_tokens,
            num_known_tokens=answer.num_known_tokens,
            num_sampled_tokens=len(completion.token_ids),
            tokens=tuple(TokenText(text=decode([i]), logprob=p) for i, p in tokens) if call.wants_logprobs else (),
        )

    def _count(self, match: Match, prompt: Prompt, completion: Completion) -> None:
        counts = self.counts
        place = {Continues: "continued", Branches: "branched", Opens: "opened"}[type(match)]
        counts[place] += 1
        if not isinstance(match, Continues | Refuses):
            counts[f"reason/{match.reason}"] += 1
        for note in () if isinstance(match, Refuses) else match.notes:
            counts[note] += 1
        counts["prompt_tokens"] += len(prompt.token_ids)
        counts["new_prompt_tokens"] += len(prompt.context_ids)
        counts["sampled_tokens"] += len(completion.token_ids)

    def _note_times(self, record: Sampled) -> None:
        watch, whole_s = record.watch, record.ended - record.watch.asked
        for kind, seconds in (("queue", watch.queue_s), ("first_token", watch.first_token_s), ("reply", whole_s)):
            self.times.note(kind, seconds)


def to_shown(prompt: Prompt) -> ShownPrompt:
    """Return what the engine is asked with."""
    return ShownPrompt(token_ids=prompt.token_ids, images=prompt.images)


def end_unsampled() -> Refusal:
    """Return what a call is told whose session ended before its reply was sampled."""
    return Refusal("the session ended before the reply was sampled", status=403, code="session_over")


async def gather_all(works: Sequence[Coroutine[Any, Any, Completion]]) -> list[Completion]:
    """Await all; when one fails, end the others before its exception is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise


def _is_cut(node: Node) -> bool:
    record: Sampled = node.record
    return record.completion.finish_reason is FinishReason.LENGTH
