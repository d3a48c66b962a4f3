"""Starts a program that reaches one server of the host, at a port of its own loopback interface.

It runs inside the sandbox, before any code that is not trusted: it listens, passes the listening socket out through the
program's channel, closes both, and becomes the program. The process outside accepts the program's connections
on that socket; no address of the host is involved, and the program can connect to nothing else.
"""

from __future__ import annotations

import linecache
import os
import socket
import sys
from collections.abc import Mapping, Sequence

CHANNEL_FD = 4
"""The channel to the caller of `LocalSandbox.run_beside`."""
HOST, PORT = "127.0.0.1", 8000
"""Where the program finds the server; the program's network namespace holds nothing else."""
BACKLOG = 128


def start(environment: Mapping[str, str], arguments: Sequence[str], source: str | None = None) -> None:
    """Pass the listening socket out, then execute `arguments`, or `source` in this interpreter with them as `sys.argv`.

    Raises FileNotFoundError if there is no such command."""
    with socket.create_server((HOST, PORT), backlog=BACKLOG) as listener, socket.socket(fileno=CHANNEL_FD) as channel:
        socket.send_fds(channel, [b"listening"], [listener.fileno()])
    os.environ.update(environment)
    sys.argv = list(arguments)
    if source is None:
        os.execvp(arguments[0], sys.argv)
    name = arguments[0]
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # for tracebacks
    exec(compile(source, name, "exec", dont_inherit=True), sys.modules["__main__"].__dict__)
