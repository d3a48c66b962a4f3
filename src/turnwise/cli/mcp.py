"""`turnwise mcp`: an environment's episodes as a Model Context Protocol server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from turnwise.cli.recipe import read_source
from turnwise.core.errors import ConfigError


def mcp(
    recipe: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE... [a.b=value ...] | NAME",
            help="Recipe files and overrides, or the name or import path of an environment.",
        ),
    ],
    split: Annotated[str, typer.Option(help="Split of the tasks: train or heldout.")] = "heldout",
    http: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve HTTP on this port of 127.0.0.1 instead of stdio; 0 means any free port.",
        ),
    ] = None,
) -> None:
    """Offer an environment's episodes as MCP tools, on stdin and stdout or as streamable HTTP on this machine."""
    from turnwise.runs.mcp import run_server

    if split not in ("train", "heldout"):
        raise ConfigError(f"--split is {split!r}; it must be train or heldout")
    run_server(
        read_source(recipe),
        split=split,  # type: ignore[arg-type]
        port=http,
        show=lambda url: print(url, file=sys.stderr, flush=True),
    )
