"""The supervisor's connection to one live process: its socket, its outputs, and a descriptor for signals."""

from __future__ import annotations

import array
import asyncio
import errno
import json
import os
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from turnwise_sandbox import wire
from turnwise_sandbox.capture import Capture

PROCESS_GROUP = 4
"""PIDFD_SIGNAL_PROCESS_GROUP: each live process leads a process group."""

_CREDENTIALS = struct.Struct("iII")
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * 16)


class Channel:
    """Watched by one event loop at a time. Incoming packets are untrusted; the pid of their sender is the kernel's."""

    def __init__(self, connection: socket.socket, pipes: Sequence[int], on_overflow: Callable[[], None]) -> None:
        connection.setblocking(False)
        # Makes the kernel add the sender's pid, in this process's pid namespace, to each packet.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.connection = connection
        self.stdout, self.stderr = Capture(), Capture()
        self.closed = False
        self._pipes = list(pipes)
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
        self._on_overflow = on_overflow
        self._pidfd = -1
        self._pending = b""
        self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._call: int | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop` watch the descriptors."""
        if self._loop is loop or self.closed:
            return
        self._loop = loop
        loop.add_reader(self.connection.fileno(), self.look)
        for pipe, capture in zip(self._pipes, (self.stdout, self.stderr), strict=True):
            loop.add_reader(pipe, self._on_output, pipe, capture)

    def reset(self, limit: int) -> None:
        """Forget earlier output; `limit` bytes of each stream are kept."""
        self.stdout.reset(limit)
        self.stderr.reset(limit)

    def expect(self, call: int | None = None) -> asyncio.Future[dict[str, Any]]:
        """The next answer, or the next answer to call number `call`: if the code sent an answer itself, the
        interpreter's own answer to that call arrives later. Fails with ConnectionError if the process ends first."""
        assert self._loop is not None
        self._call = call
        self._answer = self._loop.create_future()
        if self._ended:
            self.fail()
        return self._answer

    @property
    def waiting(self) -> bool:
        """Whether an answer is expected."""
        return self._answer is not None and not self._answer.done()

    def signal(self, number: int) -> None:
        """Signal the live process and, from Linux 6.9 on, its process group. Does nothing if the process has ended."""
        for flags in (PROCESS_GROUP, 0):
            if self._pidfd != -1:
                try:
                    signal.pidfd_send_signal(self._pidfd, number, None, flags)
                except (ProcessLookupError, PermissionError):
                    return
                except OSError as error:
                    if error.errno == errno.EINVAL and flags:
                        continue
                    raise
            return

    def look(self) -> None:
        """Read one packet if one has arrived."""
        try:
            data, ancillary, _flags, _address = self.connection.recvmsg(
                wire.MAX_PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                unwanted = array.array("i")
                unwanted.frombytes(content[: len(content) // 4 * 4])
                wire.close_all(unwanted)
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and self._pidfd == -1 and data:
                self._remember(_CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0])
        if not data:
            self._end()
            return
        answer = self._parse(data)
        if answer is None or (self._call is not None and answer.get("call") != self._call):
            return
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _parse(self, data: bytes) -> dict[str, Any] | None:
        """The answer in a packet; None if it holds none. An interpreter sends JSON, a shell lines "done STATUS"."""
        if self.connection.type == socket.SOCK_STREAM:
            self._pending = (self._pending + data)[-4096:]
            if not self._pending.endswith(b"\n"):
                return None
            words, self._pending = self._pending.split(), b""
            return {"status": int(words[-1]) & 0xFF} if len(words) >= 2 and words[-1].isdigit() else None
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    def _remember(self, pid: int) -> None:
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:
            return  # the process has ended, and the end of the stream follows

    def _end(self) -> None:
        self._ended = True
        if self._loop is not None:
            self._loop.remove_reader(self.connection.fileno())
        self.fail()

    def fail(self) -> None:
        """Fail the expected answer with ConnectionError."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the process ended"))
            self._answer.exception()  # mark as retrieved: after a failed send nothing awaits the future

    def _on_output(self, pipe: int, capture: Capture) -> None:
        if not capture.read(pipe) and self._loop is not None:
            self._loop.remove_reader(pipe)
        if capture.dropped:
            self._on_overflow()

    def drain(self) -> None:
        """Read what the pipes hold, without waiting for more."""
        if self.closed:
            return
        for pipe, capture in zip(self._pipes, (self.stdout, self.stderr), strict=True):
            capture.drain(pipe)

    def disown(self) -> None:
        """Drop the handle of the process that answered, because it belongs to another session."""
        if self._pidfd != -1:
            os.close(self._pidfd)
            self._pidfd = -1

    def close(self) -> None:
        """Close the descriptors. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        if self._loop is not None and not self._loop.is_closed():
            for fd in (self.connection.fileno(), *self._pipes):
                self._loop.remove_reader(fd)
        self.fail()
        self.connection.close()
        wire.close_all(self._pipes)
        self.disown()
