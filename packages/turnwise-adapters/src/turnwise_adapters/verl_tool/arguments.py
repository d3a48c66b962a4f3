"""The keyword arguments of the family `verl_tool`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.mcp.arguments import ServedArguments
from turnwise_adapters.verl_tool.servers import VerlToolServer


class VerlToolArguments(ServedArguments):
    """Tasks over the tools of servers that speak Verl-Tool's protocol."""

    servers: Mapping[str, VerlToolServer]
    """Servers by label; `environment.args.servers.LABEL` holds the fields of `VerlToolServer`."""

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        if not self.servers:
            raise ConfigError("servers={} has no tool server; set environment.args.servers.LABEL.url and .tools")
        return self
