"""Tools and results of servers in the form that a model reads. Pure functions of the protocol's JSON objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.messages import join_texts
from turnwise.core.types import Part, TextPart, ToolSpec
from turnwise.pictures.decode import FORMATS
from turnwise.pictures.read import read_picture

IMAGE_TYPES = ("image/jpg", *(f"image/{name.lower()}" for name in FORMATS))
"""Types of images that are read."""
MAX_NAME = 64
"""Maximum length of a tool's name in chat templates and providers' APIs."""
_UNWRITABLE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool of a server."""

    server: str
    """The server's label."""
    name: str
    """The tool's name on the server."""
    spec: ToolSpec
    """The description for the model; its name may differ."""


def name_tools(listed: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[ServerTool, ...]:
    """Name the tools of several servers, given as (label, tool) pairs: each gets a unique name that a model can write.

    Characters other than ASCII letters, digits, `_` and `-` become `_`. A name already used by an earlier tool is
    prefixed with its server's label, and numbered if that is used too. The input schema is passed on unchanged; a
    missing description is empty. Raises ConfigError when one server offers two tools of the same name.
    """
    tools: dict[str, ServerTool] = {}
    seen: set[tuple[str, str]] = set()
    for label, wire in listed:
        original = str(wire["name"])
        if (label, original) in seen:
            raise ConfigError(f"MCP server {label!r} has two tools named {original!r}; rename one of them")
        seen.add((label, original))
        name = _writable(original)
        if name in tools:
            name = _writable(f"{label}_{original}")
        number = 2
        while name in tools:
            suffix = f"_{number}"
            name = name[: MAX_NAME - len(suffix)] + suffix
            number += 1
        schema = wire.get("inputSchema") or {"type": "object", "properties": {}}
        spec = ToolSpec(name=name, description=str(wire.get("description") or ""), parameters=schema)
        tools[name] = ServerTool(server=label, name=original, spec=spec)
    return tuple(tools.values())


def _writable(name: str) -> str:
    return _UNWRITABLE.sub("_", name)[:MAX_NAME] or "tool"


def hide_parameters(spec: ToolSpec, hidden: Iterable[str]) -> ToolSpec:
    """Return the tool without those parameters of its schema whose values the environment fills in."""
    names = set(hidden)
    schema = dict(spec.parameters)
    schema["properties"] = {key: value for key, value in spec.properties.items() if key not in names}
    if spec.required:
        schema["required"] = [key for key in spec.required if key not in names]
    return ToolSpec(name=spec.name, description=spec.description, parameters=schema)


def to_text(result: Mapping[str, Any]) -> str:
    """Return a tool's result as the model reads it: its text parts, one below the other.

    Parts that are not text are named with their kind and size. Structured content is used if there are no parts.
    """
    content: Sequence[Mapping[str, Any]] = result.get("content", ())
    if not content and "structuredContent" in result:
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(map(_part_to_text, content))


def to_seen(result: Mapping[str, Any], where: str) -> tuple[Part, ...]:
    """Return a tool's result for a model that sees: as `to_text`, with the pictures of image parts, and of embedded
    image files, in their places. Images of types that are not read, such as image/svg+xml, are named as in text.

    Raises PictureError, which starts with `where`, for an image that cannot be read.
    """
    parts: list[Part] = []
    for index, part in enumerate(result.get("content", ())):
        if (encoded := _find_image(part)) is not None:
            parts.append(read_picture({"data": encoded}, where=f"image {index} of {where}"))
            continue
        if parts and isinstance(parts[-1], TextPart):
            parts.append(TextPart(text="\n"))
        parts.append(TextPart(text=_part_to_text(part)))
    return join_texts(parts) if parts else (TextPart(text=to_text(result)),)


def _find_image(part: Mapping[str, Any]) -> str | None:
    """Return the base64 of a part that is an image of a type that is read; None for any other part."""
    holder, key = (part.get("resource") or {}, "blob") if part.get("type") == "resource" else (part, "data")
    is_image = part.get("type") in ("image", "resource") and str(holder.get("mimeType")).lower() in IMAGE_TYPES
    return holder[key] if is_image and isinstance(holder.get(key), str) else None


def _part_to_text(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part["text"])
    if kind in ("image", "audio"):
        return f"[{kind} {part.get('mimeType', 'of unknown type')}, {_decoded_size(part['data'])} bytes]"
    if kind == "resource_link":
        size = f", {part['size']} bytes" if "size" in part else ""
        return f"[resource {part['uri']}{size}]"
    if kind == "resource":
        resource = part["resource"]
        if "text" in resource:
            return str(resource["text"])
        return f"[resource {resource['uri']}, {_decoded_size(resource.get('blob', ''))} bytes]"
    return f"[{kind} content]"


def _decoded_size(base64: str) -> int:
    """Return the number of bytes that base64 text encodes: 3 for every 4 characters, less one for each `=` at the
    end."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")
