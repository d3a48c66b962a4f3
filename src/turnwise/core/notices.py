"""Report starts, deaths and replacements of a run's processes to the run that records them.

The channel is a logger of the standard library: a loss is a warning, which Python shows even if nobody listens; a start
is not."""

from __future__ import annotations

import logging

PROCESSES = logging.getLogger("turnwise.processes")


def tell_start(text: str) -> None:
    """Report that processes are starting, which may take long, or that a replacement is ready."""
    PROCESSES.info("%s", text)


def tell_loss(text: str) -> None:
    """Report a process that ended unexpectedly."""
    PROCESSES.warning("%s", text)
