"""Runs pytest on selected tests in one process, and the tested package in another.

The launcher runs its source with the request as `REQUEST`, in two sandboxes with a channel between them. The tests'
half works in a tree that lacks the package's own files. The tests import stand-ins for the package's objects, which
live in a worker, a process of the other half, in the tree with the patch. Every test file gets a process and a worker
of its own, forked from those that never ran any code of the tree. After a test that lost its worker, or that ended its
own process, both are made again for the rest of the file. Beyond the reporter's keys the request has:

    half           "tests" or "package"
    sources        name to source of each module of turnwise_sandbox.grading.guest
    outcomes       source of the reporter's module
    packages       top-level names of the tested package
    local          paths of the tests' own modules inside the package's folders
    channel        descriptor of the channel to the worker's process
"""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

MAX_RESTARTS = 40
"""How often the processes of one test file may be started again."""
LOST = 77
"""Exit status of a file's process that lost its worker before the last test that it started."""


def load_guest(sources: dict[str, str]) -> None:
    """Make the package `grading_guest` from source texts."""

    class Loader(importlib.machinery.SourceFileLoader):
        def __init__(self, name: str, text: str) -> None:
            super().__init__(name, f"<{name}>")
            self.text = text

        def get_data(self, path: str) -> bytes:
            raise OSError(path)

        def get_code(self, fullname: str) -> types.CodeType:
            return compile(self.text, self.path, "exec", dont_inherit=True)

    class Finder:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            if name == "grading_guest":
                return importlib.machinery.ModuleSpec(name, Loader(name, ""), is_package=True)
            text = sources.get(name.removeprefix("grading_guest."))
            if text is None or not name.startswith("grading_guest."):
                return None
            return importlib.machinery.ModuleSpec(name, Loader(name, text))

    sys.meta_path.insert(0, Finder())


def build_watcher(pytest: Any, peer: Any, send: Any) -> Any:
    """A plugin that fails what lost the worker or failed inside a callback, reports tests that relied on the package's
    own comparisons, and keeps the package's objects from being collected as tests."""
    is_stand_in = importlib.import_module("grading_guest.stand_ins").is_stand_in

    class Watcher:
        @pytest.hookimpl(hookwrapper=True)  # type: ignore[untyped-decorator]
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
            outcome: Any = yield
            report = outcome.get_result()
            reason = peer.lost or (peer.escaped[0] if peer.escaped and report.passed else None)
            peer.escaped.clear()
            if peer.words:
                send(kind="word", id=item.nodeid)
            if reason is not None:
                report.outcome, report.longrepr = "failed", reason
                if hasattr(report, "wasxfail"):
                    del report.wasxfail

        def pytest_runtest_logstart(self, nodeid: str) -> None:
            if peer.lost is not None:
                os._exit(LOST)  # the rest of the file gets another worker
            peer.words = 0

        def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: Any) -> Any:
            return [] if is_stand_in(obj) else None

    return Watcher()


def connect(request: dict[str, Any]) -> Any:
    """Open a channel to a new worker."""
    ours, theirs = socket.socketpair()
    with socket.socket(fileno=os.dup(request["channel"])) as control:
        socket.send_fds(control, [b"w"], [theirs.fileno()])
    theirs.close()
    return ours


def run_file(reporter: Any, request: dict[str, Any], descriptor: int) -> None:
    """Run tests of one file in this process, which ends with them."""
    open_peer = importlib.import_module("grading_guest.tests").open_peer
    peer = open_peer(
        connect(request), request["packages"], request["local"], request["import_folders"], request["files"]
    )

    def send(**row: Any) -> None:
        content = (json.dumps(row) + "\n").encode("ascii")
        while content:
            content = content[os.write(descriptor, content) :]

    pytest = importlib.import_module("pytest")
    plugin = reporter["build_reporter"](pytest, request, send, {})
    pytest.main(
        reporter["arguments_of"](request, request["files"]), plugins=[plugin, build_watcher(pytest, peer, send)]
    )
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def run_part(reporter: Any, request: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Run tests of one file in a separate process; returns what it reported, and its exit status."""
    reports, descriptor = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reports)
            run_file(reporter, request, descriptor)
        except BaseException:  # noqa: BLE001 - printed; the status says that the process failed
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(descriptor)
    content = bytearray()
    with open(reports, "rb", buffering=0) as stream:
        while data := stream.read(1 << 16):
            content += data
    _, status = os.waitpid(child, 0)
    rows = [json.loads(line) for line in bytes(content).split(b"\n")[:-1]]
    return rows, os.waitstatus_to_exitcode(status)


def run_tests(reporter: Any, request: dict[str, Any], send: Any) -> list[str]:
    """Run all tests, and pass on what their processes report; returns the collected ids."""
    collected: list[str] = []
    for file in request["files"]:
        ids = [test for test in request["ids"] if test.split("::")[0] == file]
        for attempt in range(MAX_RESTARTS + 1):
            rows, code = run_part(reporter, {**request, "files": [file], "ids": ids})
            found = [test for row in rows if row["kind"] == "collected" for test in row["ids"]]
            if attempt == 0:
                collected += found
            ended = {row["id"] for row in rows if row["kind"] == "test"}
            began = [row["id"] for row in rows if row["kind"] == "start" and row["id"] in set(found) - ended]
            for row in rows:
                if row["kind"] in ("start", "test", "not collected", "word"):
                    send(**row)
            if code != LOST:
                for test in began:
                    message = f"the tests' process ended with status {code}"
                    send(kind="test", id=test, status="error", duration_s=0, cpu_s=0, message=message, details="")
                    ended.add(test)
            ids = [test for test in found if test not in ended]
            if not ids or not ended:
                break
    return collected


def preload() -> None:
    """Import what every file's process needs, once."""
    plugins = importlib.import_module("_pytest.config").default_plugins
    guests = ("tests", "stand_ins", "shared")
    for name in (
        *("pytest", "unittest", "unittest.mock", "asyncio", "difflib", "bdb", "pygments"),
        *(f"_pytest.{plugin}" for plugin in plugins),
        *(f"grading_guest.{guest}" for guest in guests),
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def run_half_of_tests(request: dict[str, Any]) -> None:
    """Run the tests."""
    namespace: dict[str, Any] = {"__name__": "<reporter>"}
    exec(compile(request.pop("outcomes"), "<reporter>", "exec"), namespace)
    send = namespace["build_sender"](request.pop("word"), request["descriptor"])
    os.set_inheritable(request.pop("descriptor"), False)
    os.set_inheritable(request["channel"], False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["pytest"]
    preload()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    collected = run_tests(namespace, request, send)
    send(kind="collected", ids=collected)
    send(kind="end", code=0)
    os._exit(0)


def run_half_of_package(request: dict[str, Any]) -> None:
    """Serve the package, one worker after the other, until the channel closes. Whatever the package does to workers and
    to this process, the tests' half only sees closed channels or wrong answers."""
    serve = importlib.import_module("grading_guest.worker").serve
    os.close(request["descriptor"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    control = socket.socket(fileno=request["channel"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers are not waited for
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data or not descriptors:
            break
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            with contextlib.suppress(BaseException):
                serve(socket.socket(fileno=descriptors[0]), request["test_limit_s"])
            os._exit(0)
        os.close(descriptors[0])
    os._exit(0)


def main(request: dict[str, Any]) -> None:
    """Run the requested half."""
    load_guest(request.pop("sources"))
    {"tests": run_half_of_tests, "package": run_half_of_package}[request["half"]](request)


main(REQUEST)  # type: ignore[name-defined]  # noqa: F821 - the launcher sets it
