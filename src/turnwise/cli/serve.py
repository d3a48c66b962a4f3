"""`turnwise serve`: a policy behind the protocols of other people's clients."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def serve(
    source: Annotated[Path, typer.Argument(metavar="RUN | MODEL", help="A run folder, or a model folder.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")] = 8000,
    model: Annotated[
        str | None, typer.Option(help="Name that clients ask for; default: the name of the folder.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Key that clients must send; default: any.")] = None,
    step: Annotated[
        str | None, typer.Option(help="RL step of a run's checkpoint, best (held-out) or latest; default: latest.")
    ] = None,
    context: Annotated[
        int, typer.Option(min=16, help="Most tokens of a prompt and its reply, for a model folder.")
    ] = 8192,
    conversations: Annotated[
        int,
        typer.Option(
            min=1,
            help="Most conversations of that length at the same time, for a model folder; fewer if memory holds fewer.",
        ),
    ] = 16,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda; default: that of the run.")] = None,
    reasoning: Annotated[
        str, typer.Option(help="keep or follow: whether reasoning that a client leaves out stays in the context.")
    ] = "keep",
    on_rewrite: Annotated[
        str, typer.Option(help="branch or refuse: what becomes of a request that changes what was said before.")
    ] = "branch",
) -> None:
    """Serve a policy to chat, completions, responses and messages clients of this machine, until interrupted."""
    from turnwise.runs.serve import read_request_rule, run_serve

    run_serve(
        source,
        port=port,
        model=model,
        key=key,
        step=step,
        device=device,
        context=context,
        conversations=conversations,
        requests=read_request_rule(reasoning, on_rewrite),
        show=lambda text: print(text, file=sys.stderr, flush=True),
    )
