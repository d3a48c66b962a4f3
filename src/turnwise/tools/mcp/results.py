"""What a server offers and answers, as a model reads it. Pure functions of the protocol's JSON objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import ConfigError
from turnwise.core.types import ToolSpec

MAX_NAME = 64
"""Characters of a tool's name, as chat templates and providers' APIs allow them."""
_UNWRITABLE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool of a server."""

    server: str
    """Label of the server."""
    name: str
    """Its name at the server."""
    spec: ToolSpec
    """What the model is told; its name may differ."""


def name_tools(listed: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[ServerTool, ...]:
    """The tools of some servers as (label, tool) pairs, each with a name that a model can write and no other has.

    Characters other than ASCII letters, digits, `_` and `-` become `_`. A name that an earlier tool has gets its
    server's label in front, and a number if that is taken too. The input schema is handed on as it is; a missing
    description is empty. Raises ConfigError when one server offers two tools of the same name.
    """
    tools: dict[str, ServerTool] = {}
    seen: set[tuple[str, str]] = set()
    for label, wire in listed:
        original = str(wire["name"])
        if (label, original) in seen:
            raise ConfigError(f"MCP server {label!r} offers two tools named {original!r}; rename one of them")
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
    """The tool without some parameters of its schema: those whose values the environment fills in."""
    names = set(hidden)
    schema = dict(spec.parameters)
    schema["properties"] = {key: value for key, value in spec.properties.items() if key not in names}
    if spec.required:
        schema["required"] = [key for key in spec.required if key not in names]
    return ToolSpec(name=spec.name, description=spec.description, parameters=schema)


def to_text(result: Mapping[str, Any]) -> str:
    """A tool's result as the model reads it: its text parts, one below the other.

    What is no text is named with its kind and size. Structured content stands in where there are no parts.
    """
    content: Sequence[Mapping[str, Any]] = result.get("content", ())
    if not content and "structuredContent" in result:
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(map(_part_to_text, content))


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
    """Bytes that base64 text stands for: 3 for every 4 characters, less one for each `=` at the end."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")
