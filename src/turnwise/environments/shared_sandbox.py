"""One sandbox for all episodes of a family, on any event loop.

A sandbox belongs to the event loop that opened it, and episodes may run on any. So it lives on a thread with a loop of
its own, as long as its owner does.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from turnwise.core.errors import ConfigError, TurnwiseError, boundary
from turnwise.tools.sandboxed import ask_sandbox
from turnwise_sandbox.types import Execution, Limits, Program, Sandbox

_CLOSE_S = 5.0
"""How long closing may take before it is left to the kernel."""

BUILT_IN = {"local": "turnwise_sandbox.supervisor:LocalSandbox"}
"""Sandboxes by name; any other name is an import path."""


def load_sandbox(name: str, arguments: Mapping[str, Any]) -> Callable[[], Sandbox]:
    """What builds a sandbox: a built-in name, or the import path "package.module:callable", called with `arguments`.

    Raises ConfigError when the path leads nowhere; what the call itself refuses comes when it is made, on first use.
    """
    module_name, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not colon:
        raise ConfigError(
            f"sandbox={name!r} is not built in ({', '.join(BUILT_IN)}) nor a path 'package.module:callable'"
        )
    with boundary(ConfigError, f"sandbox={name!r} cannot be imported"):
        build = getattr(importlib.import_module(module_name), attribute)

    def open_sandbox() -> Sandbox:
        with boundary(ConfigError, f"sandbox={name!r} with sandbox_args={dict(arguments)!r}"):
            sandbox: Sandbox = build(**arguments)
        return sandbox

    return open_sandbox


class SharedSandbox:
    """Runs programs in one sandbox from any thread and event loop.

    Opened on first use, closed with this object or the process.
    """

    def __init__(self, open_sandbox: Callable[[], Sandbox]) -> None:
        """`open_sandbox` is called at most once, on the sandbox's own event loop."""
        self._open_sandbox = open_sandbox
        self._lock = threading.Lock()
        self._home: _Home | None = None

    async def run(self, program: Program, limits: Limits) -> Execution:
        """See `Sandbox.run`. Cancelling the task that waits ends the program.

        Raises ConfigError when the sandbox cannot be opened.
        """
        with self._lock:
            if self._home is None:
                home = _Home(self._open_sandbox)
                weakref.finalize(self, home.close)
                self._home = home
        return await asyncio.wrap_future(self._home.submit(program, limits))


class _Home:
    """The thread, its loop and the sandbox."""

    def __init__(self, open_sandbox: Callable[[], Sandbox]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="turnwise-sandbox", daemon=True)
        self._thread.start()
        try:
            self._sandbox = self._submit(_call(open_sandbox)).result()
        except TurnwiseError:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def submit(self, program: Program, limits: Limits) -> Future[Execution]:
        """The execution to come."""
        return self._submit(ask_sandbox(self._sandbox.run(program, limits)))

    def _submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """End everything in the sandbox, then the loop.

        Does not wait when called on the sandbox's own thread (by the collector).
        """
        closing = self._submit(ask_sandbox(self._sandbox.close()))
        closing.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if threading.current_thread() is not self._thread:
            with contextlib.suppress(FutureTimeoutError, TurnwiseError):
                closing.result(_CLOSE_S)
            self._thread.join(_CLOSE_S)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()


async def _call(open_sandbox: Callable[[], Sandbox]) -> Sandbox:
    return open_sandbox()
