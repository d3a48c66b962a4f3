"""Ctrl-C always arrives.

An exception that is raised inside a `__del__`, a weakref callback or a callback of C code goes nowhere: Python prints
"Exception ignored" and goes on. A Ctrl-C that lands there would be lost, and the run with it would train on for hours.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_AFTER_S = 0.02  # by then the callback has ended, most likely; if it has not, the next try follows


def keep_interrupts() -> None:
    """From now on a KeyboardInterrupt that Python would drop is sent to the main thread again, until it is raised where
    it counts."""
    report = sys.unraisablehook

    def hook(unraisable: UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            report(unraisable)
            return
        again = threading.Timer(AGAIN_AFTER_S, _interrupt_main)
        again.daemon = True
        again.start()

    sys.unraisablehook = hook


def _interrupt_main() -> None:
    """SIGINT to the main thread itself, so that a blocking call in it ends too."""
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)
