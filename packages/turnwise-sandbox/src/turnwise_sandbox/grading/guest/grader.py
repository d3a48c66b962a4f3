"""The grader: runs the tests with the candidate's module replaced by stand-ins for the worker's objects.

At the end it writes its report, one JSON object, to the standard output that it started with; what tests print goes to
standard error. `collected` names every test that was found, and `results` has one entry for each."""

import importlib
import json
import os
import reprlib
import runpy
import socket
import sys
import time
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from turnwise_sandbox.grading.guest.importing import CandidateFinder, imported_names
from turnwise_sandbox.grading.guest.policy import check_request
from turnwise_sandbox.grading.guest.rpc import Peer
from turnwise_sandbox.grading.guest.stand_ins import is_stand_in
from turnwise_sandbox.grading.guest.worker import CHANNEL_FD

MAX_MESSAGE_CHARS = 300
"""Maximum length of the message about a test."""


class Recorder:
    """Outcome of every test: the worst one if there are several, for example of call and teardown, or of subtests."""

    RANK = ("passed", "skipped", "failed", "error")

    def __init__(self, peer: Peer | None) -> None:
        self.peer = peer
        self.collected: list[str] = []
        self.results: dict[str, tuple[str, str]] = {}

    def collect(self, test: str) -> None:
        """Note a test that was found."""
        if test not in self.collected:
            self.collected.append(test)

    def record(self, test: str, outcome: str, message: str = "") -> None:
        """Note the end of a test or of a part of one. A lost worker makes it an error, and a failed assertion in a
        callback makes it a failure."""
        self.collect(test)
        if self.peer is not None and self.peer.lost is not None:
            outcome, message = "error", self.peer.lost
        elif self.peer is not None and self.peer.escaped:
            escaped = self.peer.escaped.pop()
            self.peer.escaped.clear()
            if outcome == "passed":
                outcome, message = "failed", escaped
        before = self.results.get(test)
        if before is None or self.RANK.index(outcome) > self.RANK.index(before[0]):
            self.results[test] = (outcome, message[:MAX_MESSAGE_CHARS])

    def report(self) -> str:
        """The report as JSON. Tests that were found and never ended are errors."""
        results = [[test, *self.results.get(test, ("error", "was not run"))] for test in self.collected]
        return json.dumps({"results": results, "collected": self.collected})


class PytestRecorder:
    """A pytest plugin that records outcomes and keeps the candidate's objects from being collected as tests."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: Any) -> Any:
        """Keep the candidate's objects from being collected."""
        return [] if is_stand_in(obj) else None

    def pytest_assertrepr_compare(self, op: str, left: Any, right: Any) -> list[str]:
        """Compare in one short line, because comparing huge values in full would exceed the time limit."""
        return [f"{reprlib.repr(left)} {op} {reprlib.repr(right)}"]

    def pytest_itemcollected(self, item: Any) -> None:
        """Note a test that was found."""
        self.recorder.collect(item.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that could not be imported or that skips itself."""
        if report.outcome != "passed":
            self.recorder.record(
                report.nodeid or "collection", "error" if report.failed else "skipped", crash_message(report)
            )

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note the end of one phase of a test."""
        outcome = report.outcome
        if outcome == "failed" and report.when != "call":
            outcome = "error"
        if report.when == "call" or outcome != "passed":
            self.recorder.record(report.nodeid, outcome, crash_message(report))


def crash_message(report: Any) -> str:
    """The reason in a pytest report, in one line if possible."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    return str(crash.message if crash is not None else getattr(report, "longreprtext", "") or "")


class UnittestRecorder(unittest.TestResult):
    """Records the outcomes of unittest."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def addSuccess(self, test: Any) -> None:
        """Note a test that passed."""
        self.recorder.record(test.id(), "passed")

    def addFailure(self, test: Any, err: Any) -> None:
        """Note a failed assertion."""
        self.recorder.record(test.id(), "failed", f"{err[0].__name__}: {err[1]}")

    def addError(self, test: Any, err: Any) -> None:
        """Note another exception."""
        self.recorder.record(test.id(), "error", f"{err[0].__name__}: {err[1]}")

    def addSkip(self, test: Any, reason: str) -> None:
        """Note a skipped test."""
        self.recorder.record(test.id(), "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        """Note a failure that was announced; it proves nothing, so it counts as skipped."""
        self.recorder.record(test.id(), "skipped", "expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        """Note a test that passed although its failure was announced."""
        self.recorder.record(test.id(), "failed", "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        """Note the end of one part of a test."""
        if err is not None:
            self.recorder.record(test.id(), "failed", f"{subtest}: {err[0].__name__}: {err[1]}")


def run_pytest(recorder: Recorder, files: Sequence[str], module: str | None) -> None:
    """Run the files with pytest's own plugins, without a cache, and with the tests' configuration only."""
    pytest = importlib.import_module("pytest")

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    settings = Path("pytest.ini")
    if not settings.exists():
        settings.write_text("[pytest]\n")
    options = (
        "-q --tb=no -p no:cacheprovider --import-mode=importlib --continue-on-collection-errors --rootdir=. "
        "-c pytest.ini"
    )
    pytest.main([*options.split(), *files], plugins=[PytestRecorder(recorder)])


def run_unittest(recorder: Recorder, files: Sequence[str], module: str | None) -> None:
    """Run every TestCase in the files."""
    suite = unittest.TestSuite()
    for file in files:
        tests = attempt(recorder, file, lambda file=file: load_test_cases(file))  # type: ignore[misc]
        if tests is not None:
            suite.addTest(tests)
    pending: list[Any] = [suite]
    while pending:
        test = pending.pop(0)
        if isinstance(test, unittest.TestSuite):
            pending = [*test, *pending]
        else:
            recorder.collect(test.id())
    suite.run(UnittestRecorder(recorder))


def load_test_cases(file: str) -> unittest.TestSuite:
    """The TestCases in one file."""
    return unittest.defaultTestLoader.loadTestsFromModule(
        importlib.import_module(file.removesuffix(".py").replace("/", "."))
    )


def run_asserts(recorder: Recorder, files: Sequence[str], module: str | None) -> None:
    """Run each file as a script, which is one test. The candidate's public names are defined without an import, unless
    they would hide a built-in."""
    for file in files:
        recorder.collect(file)
        if attempt(recorder, file, lambda file=file: run_script(file, module)) is True:  # type: ignore[misc]
            recorder.record(file, "passed")


def run_script(file: str, module: str | None) -> bool:
    """Run one script to its end."""
    names: dict[str, Any] = {}
    if module is not None:
        candidate = importlib.import_module(module)
        names = {name: getattr(candidate, name) for name in candidate.__all__ if not name.startswith("__")}
    runpy.run_path(file, init_globals=names, run_name="__main__")
    return True


def attempt(recorder: Recorder, test: str, step: Callable[[], Any]) -> Any:
    """The result of `step`; None if it raises, which is recorded as the outcome of `test`, also for an exit."""
    try:
        return step()
    except AssertionError as problem:
        recorder.record(test, "failed", f"AssertionError: {problem}")
    except BaseException as problem:
        recorder.record(test, "error", f"{type(problem).__name__}: {problem}")
    return None


KINDS: dict[str, Callable[[Recorder, Sequence[str], str | None], None]] = {
    "pytest": run_pytest,
    "unittest": run_unittest,
    "asserts": run_asserts,
}


def main(
    folder: str, kind: str, files: list[str], module: str | None, deadline_s: float, allow_operators: bool
) -> None:
    """Run the tests in `folder`. `module` is the candidate's module; None if the tests import it in this process."""
    report_fd = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(report_fd, False)
    sys.dont_write_bytecode = True
    os.chdir(folder)
    sys.path.insert(0, os.getcwd())
    peer = None
    if module is not None:
        root = module.split(".")[0]
        os.set_inheritable(CHANNEL_FD, False)
        peer = Peer(
            socket.socket(fileno=CHANNEL_FD),
            guarded=True,
            deadline=time.monotonic() + deadline_s,
            policy=check_request,
            allow_operators=allow_operators,
        )
        sys.meta_path.insert(0, CandidateFinder(peer, {root}, lambda: imported_names(files, {root})))
    recorder = Recorder(peer)
    attempt(recorder, "test run", lambda: KINDS[kind](recorder, files, module))
    content = recorder.report().encode("ascii")
    while content:
        content = content[os.write(report_fd, content) :]
    # Do not wait for threads that tests left running.
    os._exit(0)
