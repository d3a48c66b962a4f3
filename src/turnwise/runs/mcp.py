"""An environment family offered as a Model Context Protocol server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from turnwise.building.families import build_family
from turnwise.config.run import RunConfig
from turnwise.core.protocols import Split
from turnwise.environments.mcp.episodes import INSTRUCTIONS, EpisodeDesk
from turnwise.environments.registry import load_family
from turnwise.tools.mcp.sdk import require_sdk
from turnwise.tools.mcp.serving import build_server, keep_streams, serve_http, serve_stdio


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
    with keep_streams() if port is None else nullcontext() as streams:
        desk = build_desk(recipe, split=split)
        serve = partial(serve_stdio, streams=streams) if streams else partial(serve_http, port=port or 0, started=show)
        asyncio.run(_serve(desk, serve))


async def _serve(desk: EpisodeDesk, serve: Callable[[Any], Awaitable[None]]) -> None:
    server = build_server("turnwise", INSTRUCTIONS, desk.list_tools, desk.call)
    try:
        await desk.list_tools()  # an environment that cannot be opened is refused before a client comes
        await serve(server)
    finally:
        await desk.close()
