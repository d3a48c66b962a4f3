"""Opens a surface by its name."""

from __future__ import annotations

from importlib import import_module

from turnwise_worlds.web.surfaces.http import HttpSurface
from turnwise_worlds.web.surfaces.surface import Surface, SurfaceName
from turnwise_worlds.web.surfaces.text import TextSurface


def build_surface(name: SurfaceName, *, pictures: bool = False) -> Surface:
    """Return a surface that is not open yet; with `pictures`, Chromium shows its page as one. Raises ConfigError where
    Chromium or playwright is missing."""
    if name == "text":
        return TextSurface()
    if name == "http":
        return HttpSurface()
    # The browser's package is an extra: it is imported where it is used.
    surface: Surface = import_module("turnwise_worlds.web.surfaces.chromium").ChromiumSurface(pictures=pictures)
    return surface
