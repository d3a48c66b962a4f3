"""Finds the code that blocks the event loop: a thread notices when the loop does not advance, and reports what blocks
it.

Code that blocks in an `async` function stops every episode, and every deadline with them, since both need the loop. A
deadline cannot end it, but a message that names it helps a person do so. The running code is known because each
awaitable of users' code is stepped through `named`, which marks when it occupies the loop.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Tell = Callable[[str], None]
LIMIT_S = 10.0
"""Seconds without progress of the event loop after which the code that blocks it is reported."""
POLL_S = 1.0
LOG = logging.getLogger("turnwise")


@dataclass(slots=True)
class _Hold:
    name: str
    since: float


@dataclass(slots=True)
class Watch:
    """What blocks each thread at the moment, and who is notified. A process has one; tests make their own."""

    limit_s: float = LIMIT_S
    tells: list[Tell] = field(default_factory=list)
    """Callbacks, called in the watching thread; if there are none, the message is logged, by default to standard
    error."""
    holds: dict[int, list[_Hold]] = field(default_factory=dict)
    """Nested holds per thread, the innermost last."""
    told: set[str] = field(default_factory=set)
    """Names that were reported: each is reported once."""

    def look(self, now: float) -> list[str]:
        """Return the messages that a person should see now."""
        lines = []
        for thread, stack in list(self.holds.items()):
            late = [hold for hold in list(stack) if now - hold.since >= self.limit_s]
            if late and late[-1].name not in self.told:
                self.told.add(late[-1].name)
                lines.append(_describe(late[-1].name, now - late[-1].since, _find_place(thread)))
        return lines

    def report(self, now: float) -> None:
        """Send the messages to everyone who is notified."""
        for line in self.look(now):
            for tell in self.tells or [LOG.warning]:
                tell(line)


WATCH = Watch()
_started: list[threading.Thread] = []


def _forget() -> None:
    """Reset after a fork, which threads do not survive."""
    _started.clear()
    WATCH.holds.clear()


os.register_at_fork(after_in_child=_forget)


def _watch() -> None:
    while True:
        time.sleep(POLL_S)
        WATCH.report(time.monotonic())


@contextmanager
def holding(name: str, watch: Watch = WATCH) -> Iterator[None]:
    """Mark `name` as running on the loop of this thread until the end of the block."""
    if watch is WATCH and not _started:
        _started.append(threading.Thread(target=_watch, name="turnwise-watch", daemon=True))
        _started[0].start()
    thread = threading.get_ident()
    stack = watch.holds.setdefault(thread, [])
    stack.append(_Hold(name, time.monotonic()))
    try:
        yield
    finally:
        stack.pop()
        if not stack:
            watch.holds.pop(thread, None)


class _Steps(Generator[Any, Any, Any]):
    """Iterates over the steps of an awaitable and marks each with its name.

    A SystemExit, which would end the event loop and the run with the status that it names, is raised as RuntimeError,
    as `run_in_thread` does."""

    def __init__(self, name: str, steps: Any, watch: Watch) -> None:
        self._name, self._steps, self._watch = name, steps, watch

    def send(self, value: Any) -> Any:
        with holding(self._name, self._watch):
            try:
                return self._steps.send(value)
            except SystemExit as end:
                raise RuntimeError(f"SystemExit: {end}") from end

    def throw(self, *error: Any) -> Any:
        with holding(self._name, self._watch):
            try:
                return self._steps.throw(*error)
            except SystemExit as end:
                raise RuntimeError(f"SystemExit: {end}") from end

    def close(self) -> None:
        self._steps.close()


@dataclass(slots=True)
class _Named:
    name: str
    work: Awaitable[Any]
    watch: Watch

    def __await__(self) -> Generator[Any, Any, Any]:
        return _Steps(self.name, self.work.__await__(), self.watch)


async def named(name: str, work: Awaitable[T], watch: Watch = WATCH) -> T:
    """Await `work` and return its result; while it occupies the event loop, `name` is marked as holding it."""
    result: T = await _Named(name, work, watch)
    return result


@contextmanager
def hear(tell: Tell) -> Iterator[None]:
    """Notify `tell`, from the watching thread, of what blocks a loop, until the end of the block. Names are reported
    anew."""
    WATCH.tells.append(tell)
    WATCH.told.clear()
    try:
        yield
    finally:
        WATCH.tells.remove(tell)


def _describe(name: str, seconds: float, place: str) -> str:
    return (
        f"alarm: {name} has held the event loop for {seconds:.0f} s{place}: no other episode moves and no deadline "
        "counts until it lets go; `await` what blocks there, or make it a plain `def`, which runs in a thread"
    )


def _find_place(thread: int) -> str:
    """Return where the named code is executing, as ` (file:line in function)`; empty where that is not known."""
    frame, inner = sys._current_frames().get(thread), None
    while frame is not None and frame.f_code.co_filename != __file__:
        inner, frame = frame, frame.f_back
    if frame is None or inner is None:
        return ""
    return f" ({Path(inner.f_code.co_filename).name}:{inner.f_lineno} in {inner.f_code.co_name})"
