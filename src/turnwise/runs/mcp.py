"""An environment family offered as a Model Context Protocol server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnwise.building.families import build_family
from turnwise.config.run import RunConfig
from turnwise.core.protocols import Split
from turnwise.environments.mcp.episodes import INSTRUCTIONS, EpisodeDesk
from turnwise.environments.registry import load_family
from turnwise.tools.mcp.sdk import require_sdk
from turnwise.tools.mcp.serving import build_server, serve_http, serve_stdio


def build_desk(recipe: RunConfig | str, *, split: Split) -> EpisodeDesk:
    """The episodes of a recipe, with its limits, or of an environment by name. Raises ConfigError as they do."""
    if isinstance(recipe, str):
        return EpisodeDesk(load_family(recipe, {}), split=split)
    rollout = recipe.rollout
    return EpisodeDesk(
        build_family(recipe),
        split=split,
        seed=recipe.run.seed,
        max_turns=rollout.max_turns,
        timeout_s=rollout.trajectory_timeout_s,
    )


def run_server(recipe: RunConfig | str, *, split: Split, port: int | None, show: Callable[[str], None]) -> None:
    """Serve until the client leaves (stdio, `port` None) or until interrupted (HTTP on loopback); `show` gets the URL.

    Raises ConfigError when the SDK is missing or the family refuses its arguments.
    """
    require_sdk()
    desk = build_desk(recipe, split=split)
    asyncio.run(_serve(desk, port, show))


async def _serve(desk: EpisodeDesk, port: int | None, show: Callable[[str], None]) -> None:
    server = build_server("turnwise", INSTRUCTIONS, desk.list_tools, desk.call)
    try:
        await (serve_stdio(server) if port is None else serve_http(server, port, show))
    finally:
        await desk.close()
