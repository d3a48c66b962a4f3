"""The sources of the programs that run in the sandbox."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def guest_source(name: str) -> str:
    """The source of a module of `guest`."""
    return resources.files(f"{__package__}.guest").joinpath(name).read_text(encoding="utf-8")
