"""One sandbox for all episodes of a family, on any event loop.

A sandbox belongs to the event loop that opened it, but episodes may run on any. So it lives on a thread with its own
loop, as long as its owner exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Literal, TypeVar

from turnwise.core.errors import ConfigError, SandboxError, TurnwiseError, boundary
from turnwise.core.offers import import_object
from turnwise.core.threads import run_in_thread
from turnwise.tools.sandboxed import ask_sandbox
from turnwise_sandbox.grading.channel import PairRunner
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Network, Profile, Program, Sandbox, Session

T = TypeVar("T")
_CLOSE_S = 5.0
"""Seconds that closing may take before it is left to the kernel."""

BUILT_IN = {"local": "turnwise_sandbox.supervisor:LocalSandbox"}
"""Sandboxes by name; any other name is an import path."""


def load_sandbox(name: str, arguments: Mapping[str, Any]) -> Callable[[], Sandbox]:
    """Return a function that builds a sandbox: from a built-in name, or the import path "package.module:callable",
    called with `arguments`.

    Raises ConfigError if the path leads nowhere; errors of the call itself are raised when it is made, on first use.
    """
    if ":" not in name and name not in BUILT_IN:
        raise ConfigError(
            f"sandbox={name!r} is neither built in ({', '.join(BUILT_IN)}) nor a path 'package.module:callable'"
        )
    build = import_object("sandbox", BUILT_IN.get(name, name))

    def open_sandbox() -> Sandbox:
        with boundary(ConfigError, f"sandbox={name!r} with sandbox_args={dict(arguments)!r}"):
            sandbox: Sandbox = build(**arguments)
        return sandbox

    return open_sandbox


class SharedSandbox:
    """Implements `Sandbox` for callers on any thread and event loop, with Turnwise's SandboxError.

    Opened on first use, closed with this object or the process.
    """

    def __init__(self, open_sandbox: Callable[[], Sandbox]) -> None:
        """`open_sandbox` is called at most once, on the sandbox's own event loop."""
        self._open_sandbox = open_sandbox
        self._lock = threading.Lock()
        self._home: _Home | None = None
        self._end: Callable[[], object] | None = None
        """Closes `_home` once."""

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        """See `Sandbox.run`. Cancelling the waiting task ends the program.

        Raises ConfigError if the sandbox cannot be opened.
        """
        home = self._find_home()
        return await home.ask(home.sandbox.run(program, limits))

    @property
    def runs_pairs(self) -> bool:
        """Return whether the underlying sandbox runs pairs of programs (`PairRunner`). Opens it."""
        return isinstance(self._find_home().sandbox, PairRunner)

    async def run_pair(self, worker: Program, grader: Program, limits: Limits) -> tuple[Execution, Execution]:
        """See `PairRunner.run_pair`. Raises SandboxError if the underlying sandbox runs no pairs."""
        home = self._find_home()
        if not isinstance(home.sandbox, PairRunner):
            raise SandboxError(f"{type(home.sandbox).__name__} cannot run pairs of programs; use the local sandbox")
        return await home.ask(home.sandbox.run_pair(worker, grader, limits))

    async def run_beside(self, program: Program, limits: Limits, channel: socket.socket) -> Execution:
        """See `LocalSandbox.run_beside`. Closes `channel`. Raises SandboxError for another sandbox."""
        home = self._find_home()
        if not isinstance(home.sandbox, LocalSandbox):
            channel.close()
            raise SandboxError(f"{type(home.sandbox).__name__} cannot pass a channel to a program; use the local one")
        return await home.ask(home.sandbox.run_beside(program, limits, channel))

    async def open(
        self,
        language: Literal["python", "bash"] = "python",
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
        tree: Tree | None = None,
    ) -> SharedSession:
        """See `Sandbox.open`. Cancelling the waiting task leaves no session behind."""
        home = self._find_home()
        opened: list[Session] = []

        async def open_one() -> None:
            opened.append(
                await home.sandbox.open(language, limits=limits, seed=seed, profile=profile, network=network, tree=tree)
            )

        try:
            await home.ask(open_one())
        except asyncio.CancelledError:
            home.submit(_close_all(opened))  # runs after the cancelled opening, on the same loop
            raise
        return SharedSession(opened[0], home)

    async def close(self) -> None:
        """See `Sandbox.close`; a later request opens another one."""
        with self._lock:
            self._home, end, self._end = None, self._end, None
        if end is not None:
            await run_in_thread(end)

    def _find_home(self) -> _Home:
        with self._lock:
            if self._home is None:
                home = _Home(self._open_sandbox)
                self._end = weakref.finalize(self, home.close)
                self._home = home
            return self._home


class SharedSession:
    """Implements `Session` for callers on any event loop. Made by `SharedSandbox.open`."""

    def __init__(self, session: Session, home: _Home) -> None:
        self._session = session
        self._home = home

    async def run(self, code: str, *, timeout_s: float | None = None) -> Execution:
        """See `Session.run`."""
        return await self._home.ask(self._session.run(code, timeout_s=timeout_s))

    async def fork(self) -> SharedSession:
        """See `Session.fork`."""
        return SharedSession(await self._home.ask(self._session.fork()), self._home)

    async def write_file(self, path: str, content: bytes) -> None:
        """See `Session.write_file`."""
        await self._home.ask(self._session.write_file(path, content))

    async def read_file(self, path: str, *, max_bytes: int = 16 << 20) -> bytes:
        """See `Session.read_file`."""
        return await self._home.ask(self._session.read_file(path, max_bytes=max_bytes))

    async def changes(self) -> dict[str, bytes | None]:
        """See `Session.changes`."""
        return await self._home.ask(self._session.changes())

    async def reset(self) -> None:
        """See `Session.reset`."""
        await self._home.ask(self._session.reset())

    async def close(self) -> None:
        """See `Session.close`."""
        await self._home.ask(self._session.close())


async def _close_all(sessions: list[Session]) -> None:
    for session in sessions:
        await ask_sandbox(session.close())


class _Home:
    """The thread, its loop and the sandbox."""

    def __init__(self, open_sandbox: Callable[[], Sandbox]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="turnwise-sandbox", daemon=True)
        self._thread.start()
        try:
            self.sandbox = self.submit(_call(open_sandbox)).result()
        except TurnwiseError:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    async def ask(self, answer: Coroutine[Any, Any, T]) -> T:
        """Await an answer of the sandbox or a session, from any event loop; see `ask_sandbox`."""
        return await asyncio.wrap_future(self.submit(ask_sandbox(answer)))

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the sandbox's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """End everything in the sandbox, then the loop.

        Does not wait if called on the sandbox's own thread (by the garbage collector).
        """
        closing = self.submit(ask_sandbox(self.sandbox.close()))
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
