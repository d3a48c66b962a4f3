"""Make sure that Ctrl-C, and a scheduler's SIGTERM, stop the process.

Python prints "Exception ignored" and continues when an exception is raised inside a `__del__`, a weakref callback or a
callback of C code. A Ctrl-C at such a moment would be lost, and the run would continue for hours.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

RETRY_AFTER_S = 0.02  # the callback has most likely ended by then; if it has not, another try follows


def keep_interrupts() -> None:
    """Send a KeyboardInterrupt that Python drops to the main thread again, until one is raised in normal code."""
    previous_hook = sys.unraisablehook

    def hook(unraisable: UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            previous_hook(unraisable)
            return
        retry = threading.Timer(RETRY_AFTER_S, _interrupt_main)
        retry.daemon = True
        retry.start()

    sys.unraisablehook = hook


def end_as_interrupted() -> None:
    """Treat the first SIGTERM like Ctrl-C: work under way ends cleanly and the command says how to continue. The second
    one ends the process at once, which loses nothing that was stored.

    A script's background job (`turnwise train ... &`) inherits that Ctrl-C is ignored, and is stopped all the same."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)


def _interrupt_main() -> None:
    """Send SIGINT to the main thread, so that a blocking call in it ends too."""
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)
