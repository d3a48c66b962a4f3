"""How to reach a server of the protocol, and the tools that it has: the protocol itself does not say."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from turnwise.config.section import Section
from turnwise.core.errors import ConfigError


class ActionTool(Section):
    """One tool of a server, with the form of its calls."""

    action: str
    """The action of a call, such as `<python>{code}</python>`. Each `{NAME}` is a parameter (a text); `{{` is a
    brace."""
    description: str = ""
    """Description for the model."""
    extra: list[str] = Field(default_factory=list)
    """Names of further parameters, also texts, that are sent as extra fields beside the action. A row's `bind` can fill
    them in, so that the model does not see them."""

    @property
    def parameters(self) -> list[str]:
        """Names of all parameters, each once, those in the action first."""
        fields = [name for _, name, _, _ in Formatter().parse(self.action) if name is not None]
        return list(dict.fromkeys([*fields, *self.extra]))

    @model_validator(mode="after")
    def _check_action(self) -> Self:
        try:
            names = self.parameters
        except ValueError as cause:
            raise ConfigError(f"a tool has action={self.action!r}: {cause}; write {{{{ and }}}} for braces") from None
        if not all(name.isidentifier() for name in names):
            raise ConfigError(
                f"a tool has action={self.action!r}: a parameter must be a name in braces such as {{code}}; write {{{{ "
                "and }} for braces"
            )
        return self

    def to_wire(self, name: str) -> dict[str, Any]:
        """Convert the tool to a JSON object of the Model Context Protocol, the form in which all servers' tools are
        kept."""
        properties = {parameter: {"type": "string"} for parameter in self.parameters}
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return {"name": name, "description": self.description, "inputSchema": schema}


class VerlToolServer(Section):
    """One server."""

    url: str
    """URL to which actions are posted, such as `http://127.0.0.1:5000/get_observation`."""
    tools: Mapping[str, ActionTool]
    """Tools by name; `environment.args.servers.LABEL.tools.NAME` holds the fields of `ActionTool`."""

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        target = urlsplit(self.url)
        if target.scheme not in ("http", "https") or not target.hostname:
            raise ConfigError(
                f"url={self.url!r} of a tool server is not an HTTP address; use http://HOST:PORT/get_observation"
            )
        if not self.tools:
            raise ConfigError(
                f"the tool server at {self.url} has no tools; set servers.LABEL.tools.NAME.action for each"
            )
        return self
