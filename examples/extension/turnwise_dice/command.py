"""`turnwise dice TOTAL`: how likely a total is."""

from typing import Annotated

import typer

from turnwise.core.errors import ConfigError


def dice(total: Annotated[int, typer.Argument(help="The total of two dice.")]) -> None:
    """Print in how many of the 36 rolls two dice have a total."""
    if not 2 <= total <= 12:
        raise ConfigError(f"total={total} is none of two dice; give a number from 2 to 12")
    print(f"{6 - abs(total - 7)} of 36")
