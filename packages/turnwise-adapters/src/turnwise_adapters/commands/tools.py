"""`turnwise tools`: serve tools under Verl-Tool's protocol."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from turnwise.cli.recipe import read_source
from turnwise.core.errors import ConfigError

app = typer.Typer(help="Offer tools to other trainers.", no_args_is_help=True)


@app.command()
def serve(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="TOOL... | RECIPE... [a.b=value ...] | NAME",
            help="Tools of the sandbox (python, run_program, bash, read_file, write_file), or an environment: "
            "recipe files and overrides, or a name or import path.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 means any free port.")] = 5000,
    split: Annotated[str, typer.Option(help="Split of the environment's tasks: train or heldout.")] = "train",
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Time limit of one action in seconds.")] = 60.0,
    level: Annotated[str, typer.Option(help="Level of the sandbox: auto, full, uid or process.")] = "auto",
) -> None:
    """Serve `POST /get_observation` on this machine, as Verl-Tool's trainers call it, until interrupted."""
    from turnwise_adapters.runs.tool_server import SANDBOX_TOOLS, run_tool_server

    if split not in ("train", "heldout"):
        raise ConfigError(f"--split is {split!r}; it must be train or heldout")
    run_tool_server(
        what if set(what) <= set(SANDBOX_TOOLS) else read_source(what),
        split=split,  # type: ignore[arg-type]
        port=port,
        timeout_s=timeout_s,
        level=level,
        show=lambda url: print(url, file=sys.stderr, flush=True),
    )
