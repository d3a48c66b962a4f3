"""Messages of a conversation, their parts, and the tools they call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """One piece of text in a message."""

    text: str


Part = TextPart
"""A part of a message. Text is the only kind; a further kind would join here as a union."""


def identify(content: Sequence[Part]) -> str | list[Any]:
    """Return content as JSON that differs whenever the content does: the text if all parts are text, else part by
    part."""
    parts = [part.text if isinstance(part, TextPart) else [type(part).__name__, asdict(part)] for part in content]
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call that the model requested."""

    id: str
    """Unique in its trajectory; ties the call to the tool message that answers it."""
    name: str
    arguments: str
    """The text between the delimiters of the call exactly as the model wrote it (JSON for chat models). Tools check
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallError:
    """A place in a reply that looks like a tool call but is not one. Returned to the model as an observation."""

    kind: Literal["no_action", "bad_json", "bad_call", "unclosed"]
    raw: str
    """The offending text, verbatim."""
    message: str
    """What to tell the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: tuple[Part, ...]
    reasoning: str | None = None
    """The model's thinking, if the renderer separates it; None if it stays in the content or there is none."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_errors: tuple[ToolCallError, ...] = ()
    tool_call_id: str | None = None
    """For role "tool": id of the call that this answers; None when it answers a malformed call."""
    name: str | None = None
    """For role "tool": the tool's name; None when it answers a malformed call."""

    @property
    def text(self) -> str:
        """All text parts joined."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


def text_message(role: Role, text: str, **fields: Any) -> Message:
    """Build a message with one text part; `fields` are further fields of `Message`."""
    return Message(role=role, content=(TextPart(text=text),), **fields)


def reply_message(text: str, **fields: Any) -> Message:
    """Build an assistant message as a renderer parses it, without a text part if `text` is empty; `fields` as above."""
    return Message(role="assistant", content=(TextPart(text=text),) if text else (), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool's description for the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments object, as written by the provider of the tool."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """Return the schemas of the arguments by name (a schema may be a truth value); empty if the schema names no
        arguments."""
        named = self.parameters.get("properties")
        return named if isinstance(named, Mapping) else {}

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the arguments that every call must have."""
        names = self.parameters.get("required")
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()
