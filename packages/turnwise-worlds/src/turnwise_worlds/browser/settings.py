"""How a browser is started and what its pages may use."""

from __future__ import annotations

import os
from dataclasses import dataclass

FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-pings",
    "--no-first-run",
    "--metrics-recording-only",
    "--force-color-profile=srgb",
    "--force-device-scale-factor=1",
    "--font-render-hinting=none",
)
"""Nothing runs in the background, and pictures do not depend on the screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSettings:
    """Runs with equal settings in one process share a browser."""

    max_pages: int = os.cpu_count() or 1
    """Most pages that are open at the same time; further episodes wait."""
    memory_bytes: int = 1_500_000_000
    """Most memory of the browser with all its pages; beyond, it is ended."""
    action_s: float = 5.0
    """Most seconds of an action with all that it loads."""
    queue_s: float = 600.0
    """Most seconds that an episode waits for a page."""
    max_page_bytes: int = 5_000_000
    """Longest page, as sent and as it grows."""
    pages_per_browser: int = 500
    """Pages after which a browser is replaced by a fresh one."""
    viewport: tuple[int, int] = (224, 224)
    """Width and height of a page, in pixels."""
