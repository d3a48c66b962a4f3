"""Keeps a debugged program over several requests, in a live interpreter: `start` starts it, `send` sends it a command.

Both print what the program and pdb wrote until pdb waits again, and return None, or the exit status of a program that
has ended.
"""

import json
import os
import select
import subprocess
import sys
from typing import Any

MAX_BYTES = 200_000
"""Most bytes of output per command; the rest is read and dropped."""


class Debugged:
    """A program under pdb."""

    def __init__(self, source: str, request: dict[str, Any], variables: dict[str, str]) -> None:
        commands, self.commands = os.pipe()
        self.ready, ready = os.pipe()
        request = {**request, "commands": commands, "ready": ready}
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-P", "-B", "-c", source, json.dumps(request)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(commands, ready),
            env={**os.environ, **variables},
            start_new_session=True,
        )
        os.close(commands)
        os.close(ready)

    def wait(self) -> "int | None":
        """Print output until pdb waits for a command. Returns the exit status if the program ends instead."""
        assert self.process.stdout is not None
        output = self.process.stdout.fileno()
        content, is_waiting, is_over = b"", False, False
        while True:
            readable = select.select([output, self.ready], [], [], 0.0 if is_waiting or is_over else 0.2)[0]
            data = os.read(output, 1 << 16) if output in readable else b""
            content = (content + data)[:MAX_BYTES]
            if not data and (is_waiting or is_over):
                break
            if self.ready in readable:
                is_waiting = bool(os.read(self.ready, 16))
                is_over = not is_waiting
            is_over = is_over or self.process.poll() is not None
        sys.stdout.write(content.decode("utf-8", "replace"))
        return None if is_waiting else self.process.wait()

    def send(self, command: str) -> "int | None":
        """Send pdb a command."""
        os.write(self.commands, (command.replace("\n", " ") + "\n").encode("utf-8", "replace"))
        return self.wait()


DEBUGGED: list[Debugged] = []


def start(source: str, request: dict[str, Any], variables: dict[str, str]) -> "int | None":
    """Start a program, when none is running."""
    DEBUGGED.append(Debugged(source, request, variables))
    return DEBUGGED[0].wait()


def send(command: str) -> "int | None":
    """Send a command to the program's pdb."""
    return DEBUGGED[0].send(command)
