"""A program that reaches one server of the host, at a socket that it passed out, and nothing else."""

import asyncio
import importlib.util
import socket
from collections.abc import Callable
from typing import Any

import pytest

from turnwise_sandbox.guest.endpoint import HOST, PORT
from turnwise_sandbox.supervisor import LocalSandbox
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Program
from turnwise_sandbox.zygote import WARM_UP

START = "from turnwise_sandbox.guest.endpoint import start\nstart({environment!r}, {arguments!r}, {source!r})"
LIMITS = Limits(wall_s=60.0)


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello " + await reader.readline())
    writer.close()


async def serve_beside(sandbox: LocalSandbox, arguments: list[str], source: str | None) -> Execution:
    """Run a program, and the server `greet` at its socket."""
    code = START.format(environment={"COLOUR": "green"}, arguments=arguments, source=source)
    program = Program(code=code, network="loopback", tree=Tree(layers=({"note": b"blue"},)))
    ours, theirs = socket.socketpair()
    with ours:
        run = asyncio.ensure_future(sandbox.run_beside(program, LIMITS, theirs))
        _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, ours, 64, 4)
        assert theirs.fileno() == -1
        [listener] = descriptors
        server = await asyncio.start_server(greet, sock=socket.socket(fileno=listener))
        execution = await run
        assert await asyncio.to_thread(ours.recv, 64) == b""  # nobody in the sandbox holds the channel
        server.close()
        return execution


ASK = f"""
import os, socket, sys
with socket.create_connection(("{HOST}", {PORT})) as connection:
    connection.sendall(b"you\\n")
    print(connection.recv(64), os.environ["COLOUR"], sys.argv, __name__, open("note").read())
print(sorted(set(map(int, os.listdir("/proc/self/fd"))) - {{0, 1, 2}})[:-1])
raise ValueError("told")
"""


@pytest.mark.usefixtures("full_level")
def test_a_program_reaches_the_server_that_holds_its_socket(sandbox: LocalSandbox, run: Callable[..., Any]) -> None:
    ended = run(serve_beside(sandbox, ["ask.py", "a"], ASK))
    assert ended.stdout == b"b'hello you\\n' green ['ask.py', 'a'] __main__ blue\n[]\n"  # no descriptor is left open
    assert 'File "ask.py", line 7' in ended.text()
    assert "ValueError: told" in ended.text()


@pytest.mark.usefixtures("full_level")
def test_any_command_may_be_the_program(sandbox: LocalSandbox, run: Callable[..., Any]) -> None:
    script = f"exec 5<>/dev/tcp/{HOST}/{PORT}; echo you >&5; cat <&5; echo $COLOUR"
    assert run(serve_beside(sandbox, ["bash", "-c", script], None)).stdout == b"hello you\ngreen\n"


@pytest.mark.skipif(importlib.util.find_spec("openai") is None, reason="needs the openai client")
def test_what_warms_the_client_up_still_fits_it() -> None:
    strict = WARM_UP["openai"].replace("contextlib.suppress(Exception)", "contextlib.nullcontext()")
    assert strict != WARM_UP["openai"]
    exec(strict, {})
