"""Starts the process of one vLLM engine under its own interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import EngineError, boundary
from turnwise.engines.workers.link import ALIVE_S, Link

GUEST = Path(__file__).parent / "guest"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables of the environment that vLLM sees."""


@dataclass(frozen=True, slots=True)
class GuestProcess:
    """Implements `WorkerProcess` for a program."""

    name: str
    running: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """See `WorkerProcess.pid`."""
        return self.running.pid

    @property
    def exitcode(self) -> int | None:
        """See `WorkerProcess.exitcode`."""
        return self.running.poll()

    def kill(self) -> None:
        """See `WorkerProcess.kill`."""
        self.running.kill()

    def join(self, timeout: float) -> None:
        """See `WorkerProcess.join`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.running.wait(timeout)


async def start_guest(
    name: str, *, python: Path, settings: dict[str, Any], log: Path, num_threads: int, start_s: float, silence_s: float
) -> Link:
    """Start an engine and wait until it is ready. What vLLM prints goes to `log`.

    Raises EngineError with the end of the log when it is not ready in `start_s`, or cannot be started at all. The
    process lives no longer than the thread that runs this.
    """
    ours, theirs = socket.socketpair()
    with contextlib.closing(theirs), boundary(EngineError, f"{name} cannot be started"), log.open("ab") as output:
        running = subprocess.Popen(
            [python, GUEST / "turnwise_vllm.py", str(theirs.fileno()), str(os.getpid())],
            env=_environment(num_threads),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
        )
    try:
        streams = await asyncio.open_connection(sock=ours)
        link = Link(GuestProcess(name, running), *streams, silence_s=silence_s)
    except BaseException:
        running.kill()
        raise
    link.tell_settings({**settings, "alive_s": min(ALIVE_S, silence_s / 8)})
    try:
        await link.hear_ready(start_s)
    except EngineError as error:
        lines = log.read_text(errors="replace").splitlines()[-12:]
        raise EngineError(f"{error}; the end of {log}:\n" + "\n".join(lines)) from error
    return link


def _environment(num_threads: int) -> dict[str, str]:
    return {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "OMP_NUM_THREADS": str(num_threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
