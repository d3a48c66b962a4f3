"""Report starts, deaths and replacements of a run's processes to the run that records them.

The channel is a logger of the standard library: a loss is a warning, which Python shows where nobody listens, a start
is not."""

from __future__ import annotations

import logging

PROCESSES = logging.getLogger("turnwise.processes")


def tell_start(text: str) -> None:
    """Processes begin to start, which may take long, or one is ready in the place of another."""
    PROCESSES.info("%s", text)


def tell_loss(text: str) -> None:
    """A process ended that should not have."""
    PROCESSES.warning("%s", text)
