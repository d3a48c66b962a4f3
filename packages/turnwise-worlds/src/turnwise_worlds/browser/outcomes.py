"""What can go wrong with a page, by name: what the page tried and was refused, and what ends the episode."""

from __future__ import annotations

from typing import Literal, get_args

from turnwise.core.errors import EnvironmentFault, ToolFailure

Tried = Literal["popup", "download", "permission", "dialog", "foreign"]
Lost = Literal["deadline", "size", "crash", "browser", "queue"]

TEXTS: dict[Tried, str] = {
    "popup": "the page opened a window, which was closed",
    "download": "the page started a download, which was stopped",
    "permission": "the page asked for a permission, which it did not get",
    "dialog": "the page showed a dialog, which was dismissed",
    "foreign": "the page led to another site, which cannot be reached",
}
"""What the policy reads for each."""
TRIED: tuple[Tried, ...] = get_args(Tried)


class PageRefused(ToolFailure):
    """The action was carried out, and the page then tried something that no page may; the episode goes on."""

    def __init__(self, tried: Tried) -> None:
        super().__init__(TEXTS[tried])
        self.tried = tried


class PageLost(EnvironmentFault):
    """The page is gone, and with it the episode: its reward is Invalid.

    `outcome` is "deadline" (the page did not answer in time), "size" (it grew past the limit), "crash" (its renderer
    died), "browser" (the browser died or was ended for its memory) or "queue" (no page became free in time).
    """

    def __init__(self, outcome: Lost, detail: str) -> None:
        super().__init__(f"browser: {outcome}: {detail}")
        self.outcome = outcome
