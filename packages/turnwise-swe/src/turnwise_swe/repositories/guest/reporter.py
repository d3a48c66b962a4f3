"""Runs pytest on selected tests and reports the outcome of each, in the process of the tests.

The launcher runs its source in a namespace of its own, with the request and the secret word as `REQUEST`; reports go to
a descriptor of their own. The request:

    files          test files, relative to the working folder, which is the tree; empty: pytest's own choice
    ids            the tests to run, each by its id or by that of what holds it, or null for all that are collected
    left_out       files that are not collected, and tests, with their parameters, that are not run
    options        arguments of pytest
    plugins        modules of plugins to load
    is_reversed    whether the tests run in reversed order
    observes       whether to report the functions that each test calls and the files that it writes
    test_limit_s   processor seconds after which a test is interrupted; of real time, six times as many

What code in the same process does to its own results cannot be ruled out, only made harder: pytest's functions must be
the same objects at the end as before the tree's code was imported, and a test of the reporter's own that fails must be
seen to fail.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

Hook = TypeVar("Hook")
MAX_DETAIL_CHARS = 4000
IDLE_SHARE = 6
"""Factor from a test's processor seconds to the real time it may take, on a machine that does other work."""
RANK = ("passed", "xpassed", "xfailed", "skipped", "failed", "error")
GUARDED = ("_pytest", "pytest", "pluggy", "iniconfig", "unittest", "builtins")
"""Packages whose functions must not be replaced."""
LEGACY = {"_getini_unknown_type", "fspath", "inifile", "invocation_dir", "makedir", "rootdir", "startdir"}
"""Attributes that pytest's plugin `legacypath` itself replaces when pytest starts."""
CANARY = "turnwise-canary"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.remove": (0,), "os.rename": (0, 1), "os.mkdir": (0,), "os.rmdir": (0,), "os.link": (1,), "os.symlink": (1,),
    "os.truncate": (0,),
}  # fmt: skip
"""Audit events that change files, with the positions of the paths."""


class TestTimeout(BaseException):
    """Raised in a test that exceeded its limit. Not an Exception, so that few handlers catch it."""


def cut(text: str) -> str:
    """Return the text, with its middle left out if it is long."""
    if len(text) <= MAX_DETAIL_CHARS:
        return text
    half = MAX_DETAIL_CHARS // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def build_sender(word: str, descriptor: int) -> Callable[..., None]:
    """Return a function that writes one object to the launcher."""
    number, lock, write, dumps = [0], threading.Lock(), os.write, json.dumps

    def send(**row: Any) -> None:
        with lock:
            content = f"{word} {number[0]} {dumps(row)}\n".encode("ascii")
            number[0] += 1
            while content:
                content = content[write(descriptor, content) :]

    return send


class Place(NamedTuple):
    """A module, function or class of the guarded packages: where it is found, and the object."""

    space: Mapping[str, Any]
    """The live names of a module or class, or `sys.modules`."""
    owner: str
    name: str
    value: Any
    code: types.CodeType | None


def fingerprint() -> list[Place]:
    """Record every module, class and function of the guarded packages. A class that many modules import is looked into
    once."""
    found: list[Place] = []
    seen: set[int] = set()
    for owner, module in list(sys.modules.items()):
        if owner.split(".")[0] not in GUARDED or module is None:
            continue
        found.append(Place(sys.modules, "sys.modules", owner, module, None))
        space = vars(module)
        for name, value in list(space.items()):
            if not callable(value):
                continue
            found.append(Place(space, owner, name, value, code_of(value)))
            if not isinstance(value, type) or id(value) in seen or owner == "builtins":
                continue
            if value.__module__.split(".")[0] in GUARDED:
                seen.add(id(value))
                for key, member in list(vars(value).items()):
                    if callable(member) or isinstance(member, (property, classmethod, staticmethod)):
                        found.append(Place(vars(value), f"{owner}.{name}", key, member, code_of(member)))
    return found


def code_of(value: Any) -> types.CodeType | None:
    """The code object of a function; None for anything else."""
    return value.__code__ if type(value) is types.FunctionType else None


def first_difference(before: list[Place], plugins: list[str]) -> str | None:
    """The name of a function that has been replaced; None if all are unchanged, or were replaced by a plugin's."""
    roots = {name.split(".")[0] for name in plugins}
    for space, owner, name, value, code in before:
        now = space.get(name)
        if now is value and code_of(now) is code:
            continue
        is_legacy = owner.startswith(("_pytest.", "pytest.")) and name in LEGACY
        if not is_legacy and str(getattr(now, "__module__", "")).split(".")[0] not in roots:
            return f"{owner}.{name}"
    return None


class Observer:
    """Records which functions of the tree a test enters, and which files of the tree it writes."""

    def __init__(self, root: str) -> None:
        self.start = root + os.sep
        self.entered: set[str] = set()
        self.wrote: set[str] = set()
        self.codes: dict[int, types.CodeType] = {}
        self.is_on = False
        sys.addaudithook(self.audit)

    def profile(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """Note the function of a call."""
        if event == "call" and id(frame.f_code) not in self.codes:
            code = frame.f_code
            self.codes[id(code)] = code
            if code.co_filename.startswith(self.start):
                path = code.co_filename[len(self.start) :].replace(os.sep, "/")
                self.entered.add(f"{path}::{code.co_qualname}")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a change of a file."""
        if not self.is_on:
            return
        if event == "open":
            if isinstance(arguments[2], int) and arguments[2] & WRITING:
                self.note(arguments[0])
        elif event in CHANGES:
            for position in CHANGES[event]:
                self.note(arguments[position])

    def note(self, path: Any) -> None:
        """Note a path of the tree."""
        if isinstance(path, (str, bytes)):
            full = os.path.realpath(os.fsdecode(path))
            if full.startswith(self.start) and "__pycache__" not in full:
                self.wrote.add(full[len(self.start) :])

    def begin(self) -> None:
        """Start a test."""
        self.entered, self.wrote, self.codes, self.is_on = set(), set(), {}, True
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)

    def end(self) -> tuple[list[str], list[str]]:
        """End the test; returns what it entered and wrote."""
        sys.setprofile(None)
        threading.setprofile(None)
        self.is_on = False
        return sorted(self.entered), sorted(self.wrote)


def build_canary(pytest: Any) -> Any:
    """A test class with one failing test."""

    class Canary(pytest.Item):  # type: ignore[misc, name-defined]
        def runtest(self) -> None:
            raise AssertionError(CANARY)

        def repr_failure(self, excinfo: Any) -> str:
            return CANARY

        def reportinfo(self) -> Any:
            return self.path, 0, CANARY

    return Canary


def classify(report: Any) -> str:
    """The status that one phase gives its test."""
    if hasattr(report, "wasxfail"):
        if report.skipped:
            return "xfailed"
        return "xpassed" if report.when == "call" and report.passed else str(report.outcome)
    if report.failed:
        return "failed" if report.when == "call" else "error"
    return str(report.outcome)


def crash(report: Any) -> str:
    """Why a phase did not pass, in one line."""
    longrepr = getattr(report, "longrepr", None)
    place = getattr(longrepr, "reprcrash", None)
    if place is not None:
        return str(place.message).splitlines()[0] if str(place.message) else ""
    if isinstance(longrepr, tuple):
        return str(longrepr[-1])
    lines = str(getattr(report, "longreprtext", "") or "").strip().splitlines()
    return lines[-1] if lines else ""


def begin_test(state: dict[str, Any], waits: int | None) -> None:
    """Note when a test begins."""
    state.update(status=None, message="", details="", begun=time.perf_counter(), cpu=time.process_time())
    state["waited"] = read_waited_s(waits)


def end_test(state: dict[str, Any], waits: int | None) -> dict[str, Any]:
    """The test's outcome, and how long it took."""
    waited_s = read_waited_s(waits) - state["waited"]
    return {
        "status": state["status"] or "error",
        "duration_s": round(time.perf_counter() - state["begun"] - waited_s, 6),
        "cpu_s": round(time.process_time() - state["cpu"], 6),
        "message": state["message"],
        "details": state["details"],
    }


def note_phase(state: dict[str, Any], report: Any) -> None:
    """Keep the worst status of a test's phases, with its reason."""
    status = classify(report)
    if report.when != "call" and status == "passed":
        return
    if state["status"] is None or RANK.index(status) > RANK.index(state["status"]):
        state["status"] = status
        if status not in ("passed", "xpassed"):
            state["message"] = crash(report)[:300]
            state["details"] = cut(str(report.longreprtext or ""))


def open_waits() -> int | None:
    """A descriptor for the kernel's count of how long the main thread waited for a processor; None if it has none."""
    try:
        return os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def read_waited_s(descriptor: int | None) -> float:
    """Seconds in which the main thread was ready to run but other work had the processor."""
    try:
        return 0.0 if descriptor is None else int(os.pread(descriptor, 100, 0).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def set_timers(cpu_s: float, real_s: float) -> None:
    """Send a signal after these seconds of processor time and of real time; 0 for none."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, real_s)


def names(test: str) -> Iterator[str]:
    """A test's id, its id without parameters, and the ids of the classes and the file that hold it."""
    yield test
    whole = test.split("[")[0]
    while whole:
        yield whole
        whole = whole.rpartition("::")[0]


def is_left_out(test: str, left_out: list[str]) -> bool:
    """Whether a test, itself or with its parameters, is among those that are not run."""
    return any(test == name or test.startswith((f"{name}[", f"{name}::")) for name in left_out)


def build_reporter(  # noqa: C901 - a closure around one plugin with a hook per event
    pytest: Any, request: dict[str, Any], send: Callable[..., None], before: list[Place]
) -> Any:
    """Make the plugin. It is defined here, so that its state is not an attribute of any module."""
    observer = Observer(os.path.realpath(".")) if request["observes"] else None
    state: dict[str, Any] = {}
    left_out = [test for test in request["left_out"] if "::" in test]
    canary, waits = build_canary(pytest), open_waits()
    hook: Callable[..., Callable[[Hook], Hook]] = pytest.hookimpl

    limit_s = request["test_limit_s"]

    def interrupt(number: int, frame: Any) -> None:
        set_timers(0.5, 0.5)  # repeated, for code that catches everything
        raise TestTimeout(f"ran longer than {limit_s:g} s")

    class Reporter:
        """Sends one object per test, one for the collection, and one for the end of the run."""

        @hook(trylast=True)
        def pytest_collection_modifyitems(self, session: Any, items: list[Any]) -> None:
            wanted = None if request["ids"] is None else set(request["ids"])
            chosen = [item for item in items if wanted is None or not wanted.isdisjoint(names(item.nodeid))]
            chosen = [item for item in chosen if not is_left_out(item.nodeid, left_out)]
            if request["is_reversed"]:
                chosen.reverse()
            seeded = [item.nodeid for item in chosen if needs_seed(item)]
            send(kind="collected", ids=[item.nodeid for item in chosen], unseeded=seeded)
            items[:] = [*chosen, canary.from_parent(session, name=CANARY)]

        def pytest_collectreport(self, report: Any) -> None:
            if report.outcome != "passed":
                send(kind="not collected", path=report.nodeid, status=report.outcome, message=crash(report)[:500],
                     details=cut(str(report.longreprtext)))  # fmt: skip

        @hook(hookwrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            send(kind="start", id=item.nodeid)
            begin_test(state, waits)
            if observer:
                observer.begin()
            try:
                yield
            finally:
                entered, wrote = observer.end() if observer else ([], [])
                if type(item) is not canary:
                    send(kind="test", id=item.nodeid, entered=entered, wrote=wrote, **end_test(state, waits))
                elif state["status"] not in ("failed", "error") or CANARY not in state["message"]:
                    send(kind="tampered", what="a test that fails was reported as passed")

        @hook(hookwrapper=True, trylast=True)
        def limit_phase(self, item: Any) -> Iterator[None]:
            """Interrupt a single phase of a test; pytest's own work between the phases is left alone."""
            for number in (signal.SIGPROF, signal.SIGALRM):
                signal.signal(number, interrupt)
            real_s = state["begun"] + IDLE_SHARE * limit_s - time.perf_counter()
            set_timers(max(state["cpu"] + limit_s - time.process_time(), 0.1), max(real_s, 0.1))
            try:
                yield
            finally:
                set_timers(0, 0)

        pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = limit_phase

        @hook(tryfirst=True)
        def pytest_runtest_logreport(self, report: Any) -> None:
            note_phase(state, report)

        @hook(trylast=True)
        def pytest_sessionfinish(self, session: Any) -> None:
            changed = first_difference(before, request["plugins"])
            if changed is not None:
                send(kind="tampered", what=f"{changed} was replaced")
            for plugin in session.config.pluginmanager.get_plugins():
                if not is_known(plugin, request["plugins"]) and plugin is not self:
                    send(kind="tampered", what=f"the plugin {plugin!r} was registered")

    return Reporter()


def is_known(plugin: Any, names: list[str]) -> bool:
    """Whether a plugin belongs to pytest, was requested, or comes from the tests."""
    module = plugin.__name__ if isinstance(plugin, types.ModuleType) else type(plugin).__module__
    parts = module.split(".")
    of_tests = parts[-1].startswith(("conftest", "test_")) or {"test", "tests"} & set(parts)
    return parts[0] in GUARDED or parts[0] in {name.split(".")[0] for name in names} or bool(of_tests)


def needs_seed(item: Any) -> bool:
    """Whether the test is a property test of Hypothesis that draws other examples in each run."""
    function = getattr(item, "obj", None)
    if not getattr(function, "is_hypothesis_test", False):
        return False
    settings = getattr(getattr(function, "__func__", function), "_hypothesis_internal_use_settings", None)
    return not getattr(settings, "derandomize", False)


def arguments_of(request: dict[str, Any], files: list[str]) -> list[str]:
    """The command-line arguments for pytest."""
    arguments = ["--rootdir=.", "-p", "no:cacheprovider", "-o", "addopts=", "-q", "--tb=short", "--color=no"]
    arguments += ["--continue-on-collection-errors", *request["options"]]
    arguments += [part for name in request["plugins"] for part in ("-p", name)]
    arguments += [f"--ignore={path}" for path in request["left_out"] if "::" not in path]
    return [*arguments, *files]


def main(request: dict[str, Any]) -> None:
    """Run the request."""
    send = build_sender(request.pop("word"), request["descriptor"])
    os.set_inheritable(request.pop("descriptor"), False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["pytest"]
    leave = os._exit
    pytest = importlib.import_module("pytest")
    for name in ("unittest", "unittest.mock"):
        importlib.import_module(name)
    before = fingerprint()
    files = [path for path in request["files"] if os.path.exists(path)]
    if request["files"] and not files:
        send(kind="end", code=4)
        return
    reporter = build_reporter(pytest, request, send, before)
    code = pytest.main(arguments_of(request, files), plugins=[reporter])
    send(kind="end", code=int(code))
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    leave(0)  # threads that tests left running are not waited for


if "REQUEST" in globals():  # the launcher sets it; halves.py takes the functions only
    main(globals()["REQUEST"])
