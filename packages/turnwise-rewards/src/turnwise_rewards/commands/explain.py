"""`turnwise rewards explain RUN TRAJECTORY`: show what each part of a reward gave, and what would have changed it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, finished or running.")],
    trajectory: Annotated[str, typer.Argument(metavar="TRAJECTORY", help="DRAW/MEMBER, such as 57/0.")],
) -> None:
    """Show what each part of a trajectory's reward gave, and what would have changed it; needs no model."""
    raise NotImplementedError
