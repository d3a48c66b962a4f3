"""An event loop on a thread of its own, for users of a host's programs who have no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from turnwise.hosts.host import RunningProcess

T = TypeVar("T")
END_S = 10.0
"""Maximum seconds for programs, and then for the loop, to end."""


class HostThread:
    """Runs a host's programs on a thread; they end at `close`, or with this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turnwise-host", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run the coroutine and return its result. Raises what it raises, and TimeoutError."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def close(self, running: Sequence[RunningProcess]) -> None:
        """End these programs, which were started on this thread, and the thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        self.run(_end(running), END_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_S)
        self._loop.close()
        for process in running:
            process.join(END_S)


async def _end(running: Sequence[RunningProcess]) -> None:
    for process in running:
        process.kill()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=END_S / 2)
