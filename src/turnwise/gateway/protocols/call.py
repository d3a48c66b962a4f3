"""What the protocols have in common: a request as it was understood, and a reply as it is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.core.messages import Message, ToolSpec

Finish = Literal["stop", "length", "tool_calls"]
Choice = Literal["auto", "none", "required"]
Event = tuple[str | None, Any]
"""A server-sent event: its name, None for none, and its data: a JSON value or a literal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    body: Mapping[str, Any]
    """The request as it came, for what a reply repeats."""
    model: str
    messages: tuple[Message, ...]
    """The conversation so far; with `previous`, what is new."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools on offer; empty if the request forbids calls."""
    prompt: str | tuple[int, ...] | None = None
    """Text or token ids to complete, without messages; None for a conversation."""
    previous: str | None = None
    """Id of the reply that is continued."""
    keeps_tools: bool = False
    """Whether the tools are those of the reply that is continued: the request leaves them out."""
    choice: Choice = "auto"
    """Whether the reply must call a tool. The tools of a request that forbids calls are not in `tools`."""
    forced: str | None = None
    """The tool that the reply must call."""
    max_calls: int | None = None
    """Most calls in the reply; None for any number."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the reply's text; None for free text."""
    num_replies: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    wants_stream: bool = False
    wants_usage: bool = True
    """Whether a stream reports usage."""
    wants_logprobs: bool = False
    shows_thoughts: bool = True
    """Whether the client is given the reply's reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenText:
    """One sampled token."""

    text: str
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One delivered reply."""

    id: str
    """Unique; the name by which a later request may continue it."""
    message: Message
    finish: Finish
    stop_text: str | None = None
    """The client's stop string that ended it; None if none did."""
    num_prompt_tokens: int
    num_known_tokens: int = 0
    """Tokens of the prompt that an earlier request of this session had."""
    num_sampled_tokens: int
    tokens: tuple[TokenText, ...] = ()


def slice_text(text: str, size: int = 400) -> list[str]:
    """Return a text in pieces, none of which is empty."""
    return [text[at : at + size] for at in range(0, len(text), size)]
