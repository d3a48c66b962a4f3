"""The common part of backends that run whole programs and have no live sessions: bubblewrap and rented machines."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Literal

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.tree_archives import TreeShelf
from turnwise_sandbox.tree_store import StoredTree
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Network, Profile, Program, Session


class WholePrograms(ABC):
    """Implements `Sandbox`, but `open` always raises SandboxError. A subclass defines `run_in`."""

    def __init__(self, level: str, *, max_concurrent: int, remedy: str) -> None:
        """`level` is the `level` of its executions and names it in messages. `max_concurrent` bounds the programs at a
        time. `remedy` says how programs can get what `Tree.visible` would show."""
        self.level = level
        self._shelf = TreeShelf(f"the {level} sandbox", remedy)
        self._places = asyncio.Semaphore(max_concurrent)
        self._running: set[asyncio.Task[Execution]] = set()
        self._closed = False

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        """See `Sandbox.run`. Raises SandboxError after `close`, for a path that leaves its folder, or if the backend
        fails."""
        async with self._places:
            if self._closed:
                raise SandboxError(f"the {self.level} sandbox is closed; build a new one")
            task = asyncio.ensure_future(self._run(program, limits))
            self._running.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if self._closed and caller is not None and not caller.cancelling():
                    raise SandboxError(f"the {self.level} sandbox was closed while the program ran") from None
                raise
            finally:
                self._running.discard(task)

    async def open(
        self,
        language: Literal["python", "bash"] = "python",
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
        tree: Tree | None = None,
    ) -> Session:
        """Always raises SandboxError, because this backend has no live sessions."""
        raise SandboxError(
            f"the {self.level} sandbox has no live {language} sessions, in a tree or without; use the local sandbox, "
            "or run whole programs"
        )

    async def close(self) -> None:
        """End every program. A second call does nothing."""
        self._closed = True
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._shelf.close()

    async def _run(self, program: Program, limits: Limits) -> Execution:
        async with self._shelf.take(program) as tree:
            return await self.run_in(program, limits, tree)

    @abstractmethod
    async def run_in(self, program: Program, limits: Limits, tree: StoredTree | None) -> Execution:
        """Run a program in a fresh place, with a tree or without. When it is cancelled nothing of it remains."""
