"""Prompts of requests: stored token ids with what is new appended, or a conversation rendered from its beginning."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnwise.core.errors import RenderError
from turnwise.core.keys import Span
from turnwise.core.messages import Message, ToolCall, ToolSpec
from turnwise.core.prompts import extend_prompt, open_prompt
from turnwise.core.protocols import Renderer
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Completion, Grammar, IntArray, SamplingParams, to_ids
from turnwise.gateway.forest import Branches, Continues, Forest, Match, Opens
from turnwise.gateway.protocols.call import Call
from turnwise.gateway.refusals import Refusal
from turnwise.gateway.times import Watch

LEAST_TEMPERATURE, LEAST_TOP_P = 1e-4, 1e-6
"""Below these, logits divided by the temperature overflow, or no token is left, and engines refuse what clients may ask
for. A temperature below is greedy, and a mass below keeps the likeliest token, which is what both tend to."""
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may use."""

    max_context: int
    """Most tokens of a prompt and its reply."""
    max_reply_tokens: int
    max_turns: int | None = None
    """Most replies in one conversation; None for any number, as below."""
    max_replies: int | None = None
    """Most replies in all conversations."""
    max_concurrent: int = 16
    """Most replies that are sampled at once; further ones wait in the order in which they were asked for."""
    ends_when_cut: bool = False
    """Whether a reply that a limit of tokens cut off is the last of its conversation."""
    timeout_s: float | None = None
    """Seconds after which a session takes no calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRule:
    """How replies are drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    follows_client: bool = True
    """Whether the temperature, truncation and seed of a request count. A policy that trains is sampled as its recipe
    says, whatever a client asks for."""
    build_call_grammar: Callable[[Sequence[ToolSpec], int | None], Grammar] | None = None
    """Builds the grammar of a reply that must call one of the tools, at most so many times; None if calls cannot be
    forced."""
    build_reply_grammar: Callable[[Sequence[ToolSpec]], Grammar] | None = None
    """Builds the grammar of every reply that tools are offered to; None leaves replies free."""
    writes_json: bool = False
    """Whether a reply's text can be held to a JSON schema."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """What a reply is conditioned on."""

    parent: int | None
    """The reply whose tokens the prompt begins with; None if it was rendered from its beginning."""
    token_ids: IntArray
    context_ids: IntArray
    """The end of `token_ids`: what follows the parent's reply; all of them without a parent."""
    messages: tuple[Message, ...]
    """What was rendered as `context_ids`."""
    tools: tuple[ToolSpec, ...]
    images: tuple[Span, ...] = ()
    """Places in `token_ids` that stand for pictures."""
    context_images: tuple[Span, ...] = ()
    """Places in `context_ids`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """A reply as it was sampled: the record of its node."""

    prompt: Prompt
    completion: Completion
    parsed: Message
    """The reply as the renderer reads it; the node's message is what was delivered of it."""
    calls: Mapping[str, ToolCall]
    """Its calls by the ids that were handed out."""
    match: Match
    conversation: str
    """Name of the engine's session."""
    role: str
    """The role that the client named with the model; "" for none."""
    began: float
    """When its request came, by the performance counter."""
    ended: float
    """When it was sampled."""
    watch: Watch = field(default_factory=Watch)


def build_prompt(forest: Forest, renderer: Renderer, match: Match, tools: tuple[ToolSpec, ...]) -> Prompt:
    """Return the prompt of a request. Only what is new is rendered where a reply is continued.

    Raises RenderError if the renderer cannot express the messages at all.
    """
    if isinstance(match, Branches) and match.beside is not None:
        beside: Sampled = forest.nodes[match.beside].record
        return beside.prompt
    if isinstance(match, Continues | Branches) and match.after is not None:
        before: Sampled = forest.nodes[match.after].record
        tail = to_rendered(forest, match.tail)
        sampled = before.completion.token_ids
        context = extend_prompt(renderer, before.prompt.token_ids, sampled, tail, before.prompt.tools)
        start = len(before.prompt.token_ids) + len(sampled)
        return Prompt(
            parent=match.after,
            token_ids=to_ids(np.concatenate([before.prompt.token_ids, sampled, context.token_ids])),
            context_ids=context.token_ids,
            messages=tail,
            tools=before.prompt.tools,
            images=(*before.prompt.images, *(span.shift(start) for span in context.images)),
            context_images=context.images,
        )
    messages = to_rendered(forest, match.messages if isinstance(match, Opens) else getattr(match, "tail", ()))
    shown = open_prompt(renderer, messages, tools)
    ids, images = shown.token_ids, shown.images
    return Prompt(
        parent=None,
        token_ids=ids,
        context_ids=ids,
        messages=messages,
        tools=tools,
        images=images,
        context_images=images,
    )


def open_instead(messages: Sequence[Message], cause: RenderError) -> Opens:
    """Return the match of a request whose new messages no appended tokens can express."""
    return Opens(messages=tuple(messages), reason="unrenderable", detail=str(cause))


def to_rendered(forest: Forest, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages with the renderer's own ids of calls, and with the names of the tools that results are from."""
    known: dict[str, ToolCall] = {}
    rendered = []
    for message in messages:
        calls = []
        for call in message.tool_calls:
            known[call.id] = _find_call(forest, call.id) or call
            calls.append(replace(call, id=known[call.id].id))
        called = message.tool_call_id and (known.get(message.tool_call_id) or _find_call(forest, message.tool_call_id))
        if called:
            message = replace(message, tool_call_id=called.id, name=called.name)
        rendered.append(replace(message, tool_calls=tuple(calls)))
    return tuple(rendered)


def _find_call(forest: Forest, issued: str) -> ToolCall | None:
    node = forest.find(issued)
    return node.record.calls.get(issued) if node is not None and isinstance(node.record, Sampled) else None


def read_prompt(prompt: str | Sequence[int], encode: Encode | None, vocab_size: int | None) -> list[int]:
    """Return the token ids of a raw prompt. Raises Refusal for one that no model can read."""
    if encode is None or vocab_size is None:
        raise Refusal("texts are not completed here; send a conversation", field="prompt", code="unsupported")
    ids = list(encode(prompt) if isinstance(prompt, str) else prompt)
    at = next((at for at, token in enumerate(ids) if not 0 <= token < vocab_size), None)
    if at is not None:
        raise Refusal(f"{ids[at]} is no token; the vocabulary has {vocab_size:,}", field=f"prompt[{at}]")
    if not ids:
        raise Refusal("has no tokens; send a text that the tokenizer can read", field="prompt")
    return ids


def check_length(match: Match, prompt: object, longest_token: int | None, max_context: int) -> None:
    """Raise Refusal for new text that the context cannot hold, whatever its tokens are: to tokenize megabytes takes
    seconds in which nobody else is answered."""
    is_read = isinstance(prompt, tuple) or (isinstance(match, Branches) and match.beside is not None)
    if longest_token is None or is_read:
        return
    new = match.messages if isinstance(match, Opens) else getattr(match, "tail", ())
    texts = [prompt] if isinstance(prompt, str) else [m.text for m in new if m.role != "assistant"]
    size = sum(map(len, texts))
    if size > longest_token * max_context:
        raise Refusal(
            f"a text of {size:,} characters leaves no room in {max_context} tokens; shorten it",
            field="prompt" if prompt is not None else "messages",
            code="context_length_exceeded",
        )


def find_room(limits: Limits, call: Call, num_prompt: int, num_turns: int) -> int:
    """Return the most tokens of a reply. Raises Refusal where a limit leaves none."""
    if limits.max_turns is not None and num_turns >= limits.max_turns:
        raise Refusal(f"the conversation has {num_turns} replies, the most that it may have; end it", code="turn_limit")
    room = limits.max_context - num_prompt
    if room < 1:
        raise Refusal(
            f"the prompt has {num_prompt} tokens and leaves no room in {limits.max_context}; shorten it",
            field="prompt" if call.prompt is not None else "messages",
            code="context_length_exceeded",
        )
    return min(room, limits.max_reply_tokens, call.max_tokens or room)


def build_params(
    rule: SamplingRule, call: Call, renderer: Renderer, *, room: int, seed: int, number: int
) -> SamplingParams:
    """Return how a reply is sampled; `number` counts the replies of one request. Raises Refusal if the reply cannot be
    held to what the request demands."""
    asked = call if rule.follows_client else None
    if asked is not None and asked.seed is not None:
        seed = derive_seed("client", asked.seed, number)
    temperature = rule.temperature if asked is None or asked.temperature is None else asked.temperature
    top_p = rule.top_p if asked is None or asked.top_p is None else asked.top_p
    return SamplingParams(
        max_tokens=room,
        temperature=temperature if temperature >= LEAST_TEMPERATURE else 0.0,
        top_p=max(top_p, LEAST_TOP_P),
        top_k=rule.top_k if asked is None or asked.top_k is None else asked.top_k,
        min_p=rule.min_p if asked is None or asked.min_p is None else asked.min_p,
        grammar=build_grammar(rule, call),
        stop=(*(() if call.prompt is not None else renderer.stop), *call.stop),
        stop_token_ids=renderer.stop_token_ids,
        seed=seed,
    )


def name_grammar_field(call: Call) -> str | None:
    """Return the field of a request that its grammar is built from; None if it needs none."""
    if call.schema is None or call.choice == "required":
        return "tools" if call.tools else None
    return next((key for key in ("response_format", "output_config", "text") if call.body.get(key)), None)


def build_grammar(rule: SamplingRule, call: Call) -> Grammar | None:
    """Return the grammar that a request needs; None if it allows everything. Raises Refusal if the reply cannot be held
    to it."""
    if call.choice == "required":
        if rule.build_call_grammar is None:
            raise Refusal(
                "a call cannot be forced with this policy; send auto", field="tool_choice", code="unsupported"
            )
        tools = [tool for tool in call.tools if call.forced in (None, tool.name)]
        return rule.build_call_grammar(tools, call.max_calls)
    if call.schema is None:
        return rule.build_reply_grammar(call.tools) if rule.build_reply_grammar and call.tools else None
    if not rule.writes_json:
        raise Refusal(
            "a reply cannot be held to a schema with this policy; leave it out",
            field=name_grammar_field(call),
            code="unsupported",
        )
    return Grammar(kind="json_schema", text=json.dumps(call.schema))
