"""Sources of the modules that run inside the sandbox."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def guest_source(package: str, name: str) -> str:
    """The source text of `guest/NAME` of a package."""
    return resources.files(f"{package}.guest").joinpath(name).read_text(encoding="utf-8")
