"""One jail with its browser, seen from the run: started, asked, ended."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from turnwise.core.errors import ConfigError
from turnwise_worlds.browser import wire
from turnwise_worlds.browser.memory import MemoryLimit
from turnwise_worlds.browser.outcomes import PageLost
from turnwise_worlds.browser.processes import find_descendants, wait_for_end
from turnwise_worlds.browser.settings import FLAGS, BrowserSettings

Site = Callable[[wire.Asked], wire.Replied]
"""Answers the requests of one page; called in a thread of its own."""
_START_S = 60.0
_CLOSE_S = 5.0
_ERROR_BYTES = 4000
SCRATCH_BYTES = 512 << 20


class Child:
    """A process with the jail. Every method may be called in any thread."""

    def __init__(self, program: str, settings: BrowserSettings) -> None:
        """Start it and wait until the browser is there. Raises ConfigError, naming the reason, if it cannot start."""
        self.num_opened = 0
        """Pages that were opened in it."""
        self.num_pages = 0
        """Pages that are open in it."""
        self.sites: dict[int, Site] = {}
        """Sites that answer outside the jail, by page."""
        self._numbers = itertools.count(1)
        self._page_numbers = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._max_page_bytes = settings.max_page_bytes
        self._end = ""
        self._ready: Future[str] = Future()
        self._errors = bytearray()
        self._memory = MemoryLimit(settings.memory_bytes)
        self._process = self._start(program, settings)
        for target in (self._read_answers, self._read_errors):
            threading.Thread(target=target, name="turnwise-browser", daemon=True).start()
        self._memory.watch(self._process.pid, self.kill)
        try:
            self.version = self._ready.result(_START_S)
        except (TimeoutError, PageLost):
            self.close()
            lines = self._errors.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
            raise ConfigError(
                f"{program} did not start in its jail: {lines[-1][:300]}; its jail needs root or user namespaces "
                "(sysctl kernel.unprivileged_userns_clone=1)"
            ) from None

    def _start(self, program: str, settings: BrowserSettings) -> subprocess.Popen[bytes]:
        fds = self._memory.attach_fds()
        given = {
            **asdict(settings),
            "program": program,
            "flags": FLAGS,
            "packages": [_folder_of("playwright")],
            "scratch_bytes": SCRATCH_BYTES,
            "cgroup_fds": fds,
        }
        return subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.guest.program", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=fds,
            env=_environment(),
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._end

    @property
    def pid(self) -> int:
        """The process outside the jail; all others are below it."""
        return self._process.pid

    def take_number(self) -> int:
        """Return the number of a new page."""
        return next(self._page_numbers)

    def ask(self, message: dict[str, Any]) -> Future[dict[str, Any]]:
        """Send a message; the future gets its answer, or PageLost when the browser ends."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._numbers)
            if self._end:
                future.set_exception(PageLost("browser", self._end))
                return future
            self._waiting[number] = future
        self._send({"id": number, **message})
        return future

    def kill(self, reason: str) -> None:
        """End the browser and everything in its jail; whoever waits gets PageLost with the reason."""
        with self._lock:
            self._end = self._end or reason
            waiting, self._waiting = self._waiting, {}
        self._process.kill()  # process 1 of the jail ends with it, and the kernel ends the rest
        for future in waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(PageLost("browser", self._end))
        with contextlib.suppress(InvalidStateError):  # it was ready
            self._ready.set_exception(PageLost("browser", self._end))

    def close(self) -> None:
        """End the browser and wait until nothing of it is left, for at most five seconds."""
        pids = find_descendants(self.pid)
        self.kill("it was closed")
        try:
            self._process.wait(_CLOSE_S)
            wait_for_end(pids, _CLOSE_S)
        finally:
            self._memory.close()

    def _send(self, message: dict[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            with self._lock:
                pipe.write(wire.encode(message))
                pipe.flush()
        except (OSError, ValueError):  # the reader finds the end
            pass

    def _read_answers(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            while line := pipe.readline(wire.LINE_BYTES):
                self._read(wire.decode(line))
        except ValueError:
            pass  # a line that is none: the guest was cut off
        self.kill(f"it ended with status {self._process.poll()}" if self._process.poll() is not None else "it ended")

    def _read(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready.set_result(message["ready"])
        elif "ask" in message:
            threading.Thread(target=self._answer, args=(message,), name="turnwise-site", daemon=True).start()
        else:
            with self._lock:
                future = self._waiting.pop(message["id"], None)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(message)

    def _answer(self, message: dict[str, Any]) -> None:
        site = self.sites.get(message["page"])
        fields = tuple((name, value) for name, value in message["fields"])
        asked = wire.Asked(message["method"], message["target"], fields)
        reply = wire.Replied(404, "", "") if site is None else site(asked)
        if len(reply.html) > self._max_page_bytes:
            reply = wire.Replied(413, "", "")
        self._send({"answer": message["ask"], **reply._asdict()})

    def _read_errors(self) -> None:
        pipe: BinaryIO | None = self._process.stderr  # type: ignore[assignment]
        assert pipe is not None
        while line := pipe.readline(_ERROR_BYTES):
            self._errors = (self._errors + line)[-_ERROR_BYTES:]


def _folder_of(package: str) -> str:
    spec = find_spec(package)
    assert spec is not None  # `require_package` has found it
    assert spec.origin is not None
    return str(Path(spec.origin).parent)


def _environment() -> dict[str, str]:
    """Return what the guest needs: where packages are, and nothing of the user's."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path)), "LANG": "C.UTF-8"}
