"""A live Python interpreter, which keeps variables between pieces of code and returns the value of the last expression.

Runs inside the sandbox as the process whose state it keeps. Reads packets from its socket (see `wire`): `run` with the
code in a memfd, `fork` with a new socket and new outputs. Its answers are as untrusted as the code it runs."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import ast
import builtins
import errno
import os
import random
import socket
import sys
import types
from typing import Any

from turnwise_sandbox import wire
from turnwise_sandbox.guest.program import exit_status, print_error

MAX_VALUE_CHARS = 20_000
"""Maximum length of a value that is returned in full."""


class LiveInterpreter:
    """One interpreter, and the socket through which it gets code."""

    def __init__(self, connection: _socket.socket) -> None:
        self._connection = connection
        self._running = False
        self._interrupts = 0
        self._count = 0
        self._forks = 0
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        self._namespace = main.__dict__
        _signal.signal(_signal.SIGINT, self._on_interrupt)

    def _on_interrupt(self, number: int, frame: object) -> None:
        self._interrupts += 1
        # An interrupt that arrives after the code has ended must not end the interpreter.
        if self._running:
            raise KeyboardInterrupt

    def serve(self) -> None:
        """Send a first packet, from which the supervisor learns this process's pid; then answer packets until the
        socket closes."""
        sys.path.insert(0, "")  # as at Python's own prompt: modules in the working folder can be imported
        wire.send_packet(self._connection, wire.READY)
        while True:
            try:
                header, fds = wire.receive(self._connection)
            except OSError:
                return
            if header is None:
                return
            if header["op"] == "fork":
                self._fork(fds)
                continue
            source = os.pread(fds[0], header["size"], 0)
            wire.close_all(fds)
            try:
                answer = self.run(source, header["interrupts"])
            except SystemExit as leave:
                _flush()
                os._exit(exit_status(leave.code))
            try:
                wire.send(self._connection, {**answer, "call": header["call"]})
            except OSError:
                return

    def run(self, source: bytes, interrupts: int) -> dict[str, Any]:
        """Execute one piece of code. Returns `repr` of its value and the last line of its error; each None if absent.

        `interrupts` were sent before this code; if more have arrived, one came before the code could begin."""
        self._count += 1
        name = f"<cell {self._count}>"
        value = None
        error = None
        try:
            self._running = True
            if self._interrupts > interrupts:
                raise KeyboardInterrupt
            value = self._evaluate(source, name)
        except SystemExit:
            raise
        except BaseException as failure:  # whatever the code raises, also KeyboardInterrupt
            self._running = False
            error = print_error(failure, source, name) or type(failure).__name__
        finally:
            self._running = False
        _flush()
        return {"value": value, "error": error}

    def _evaluate(self, source: bytes, name: str) -> str | None:
        tree = compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)  # no frame of `ast` in a traceback
        assert isinstance(tree, ast.Module)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if tree.body:
            exec(compile(tree, name, "exec", dont_inherit=True), self._namespace)
        if not isinstance(last, ast.Expr):
            return None
        value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), self._namespace)
        if value is None:
            return None
        self._namespace["_"] = value
        text = repr(value)
        return (
            text
            if len(text) <= MAX_VALUE_CHARS
            else f"{text[:MAX_VALUE_CHARS]}... [{len(text) - MAX_VALUE_CHARS} more characters]"
        )

    def _fork(self, fds: list[int]) -> None:
        """Fork: the child answers on the new socket and works in a copy of the folder."""
        import shutil  # not at the top: its imports would slow down the fork of every program

        connection, stdout, stderr = fds
        self._forks += 1
        here = os.getcwd()
        copy = f"{here}.{self._forks}"
        is_copy = is_made = False
        try:
            os.mkdir(copy)
            is_made = True  # a folder that existed before must not be removed
            shutil.copytree(here, copy, symlinks=True, dirs_exist_ok=True)
            _flush()
            is_copy = _split()
        except (OSError, shutil.Error) as failure:
            if is_made:
                shutil.rmtree(copy, ignore_errors=True)
            # Report only the first file that could not be copied, because a packet has a limited size.
            why = failure.args[0][0][-1] if isinstance(failure, shutil.Error) else failure
            with socket.socket(fileno=os.dup(connection)) as refused:
                wire.send(refused, {"error": str(why)[:1000]})
        if not is_copy:
            wire.close_all(fds)
            return
        os.setsid()  # so that an interrupt reaches the branch and what it starts, but not the original
        self._connection.close()
        self._connection = socket.socket(fileno=connection)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        wire.close_all([stdout, stderr])
        os.chdir(copy)
        for name in ("HOME", "PWD"):
            if os.environ.get(name) == here:  # in a tree, HOME lies elsewhere
                os.environ[name] = copy
        self._forks = self._interrupts = 0
        wire.send(self._connection, {"folder": copy})


def _split() -> bool:
    """Fork; True in the copy. Raises OSError if no more processes are allowed.

    An intermediate process forks the copy and ends at once, so that the cell reaps the copy and the copy outlives the
    original. `os.fork` is used rather than a raw clone, because the session may have threads, and a lock that one of
    them holds could block the copy forever."""
    state = random.getstate()  # a fork reseeds `random`, and the copy must not
    between = os.fork()
    if between:
        try:
            failed = os.waitpid(between, 0)[1] != 0
        except ChildProcessError:
            failed = False  # the session ignores SIGCHLD; the answer of the copy, or none, shows whether it exists
        if failed:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return False
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    random.setstate(state)
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
