"""Messages of a conversation, their parts, and the tools they call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """One piece of text in a message."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """One picture in a message, known by its content: two parts of equal pixels are equal.

    Build one with `pictures.read.read_picture`, which reads files, data URLs, bytes, arrays and Pillow's images.
    """

    digest: str
    """`hash_pixels` of the picture, in hexadecimal."""
    width: int
    """In pixels."""
    height: int
    """In pixels."""
    label: str = field(default="", compare=False)
    """A name for people; it is no part of the content."""
    pixels: bytes | None = field(default=None, compare=False, repr=False)
    """RGB, 8 bits each, row by row from the top left, `height * width * 3` bytes; None once they are in a store
    (`core.pictures`)."""


Part = TextPart | ImagePart
"""A part of a message."""


def hash_pixels(pixels: bytes, width: int, height: int) -> str:
    """Return the digest of a picture: SHA-256 of its size and its RGB bytes, in hexadecimal."""
    return hashlib.sha256(f"{width} {height} ".encode() + pixels).hexdigest()


def identify(content: Sequence[Part]) -> str | list[Any]:
    """Return content as JSON that differs whenever the content does: the text if all parts are text, else part by
    part."""
    parts = [part.text if isinstance(part, TextPart) else ["image", part.digest] for part in content]
    return "".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else parts


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
        """All text parts joined; pictures leave no trace in it (`to_plain_text` names them)."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The pictures, in order."""
        return tuple(part for part in self.content if isinstance(part, ImagePart))


def list_images(messages: Iterable[Message]) -> list[ImagePart]:
    """Return the pictures of messages, in order; one that is shown twice is there twice."""
    return [part for message in messages for part in message.images]


def without_pixels(message: Message) -> Message:
    """Return the message whose pictures are known by their digests alone; the same object if it has none with
    pixels."""
    if all(part.pixels is None for part in message.images):
        return message
    return replace(message, content=drop_pixels(message.content))


def drop_pixels(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts, pictures among them by their digests alone."""
    return tuple(replace(part, pixels=None) if isinstance(part, ImagePart) else part for part in parts)


def join_texts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts with adjacent texts joined and empty ones left out; if nothing is left, one empty text."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            joined[-1] = TextPart(text=last.text + part.text)
        elif part != TextPart(text=""):
            joined.append(part)
    return tuple(joined) or (TextPart(text=""),)


def show_digest(digest: str) -> str:
    """Return the first 12 digits of a digest, by which people tell pictures apart."""
    return digest[:12]


def describe_part(part: Part) -> str:
    """Return the text of a part; of a picture its width, height and digest, such as `[picture 64x48 ab12cd34ef56]`."""
    return (
        part.text if isinstance(part, TextPart) else f"[picture {part.width}x{part.height} {show_digest(part.digest)}]"
    )


def to_plain_text(message: Message) -> str:
    """Return the content of a message for readers of text, who are told of every picture (`describe_part`)."""
    return "".join(map(describe_part, message.content))


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
