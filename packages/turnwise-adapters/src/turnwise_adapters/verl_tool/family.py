"""Tasks over the tools of servers that speak Verl-Tool's protocol."""

from __future__ import annotations

from typing import Any

from turnwise.environments.arguments import read_arguments
from turnwise.environments.mcp.family import ServedTasks
from turnwise_adapters.verl_tool.arguments import VerlToolArguments
from turnwise_adapters.verl_tool.session import TrajectorySession


class VerlToolTasks(ServedTasks):
    """Questions from a file, answered with the tools of servers; an episode is one trajectory at each server."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments` are the fields of `VerlToolArguments`.

        Raises ConfigError naming the argument and the remedy, and what `ServedTasks` raises.
        """
        chosen = read_arguments(VerlToolArguments, arguments)
        super().__init__(
            "verl_tool",
            chosen,
            lambda: {label: TrajectorySession(server, label) for label, server in chosen.servers.items()},
        )
