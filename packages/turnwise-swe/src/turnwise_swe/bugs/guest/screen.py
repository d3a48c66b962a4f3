"""Screen candidates: collect the tests once, then for each candidate fork, swap the code of the edited functions, and
run the tests that enter them.

The order is read as JSON from stdin; one line of JSON per candidate is written to stdout. What the tests print is
dropped. A candidate is the text of one statement of a module, before and after the edit, with its first line:

    {"id": ..., "path": ..., "line": 12, "before": "def f(): ...", "after": "def f(): ...", "tests": [3, 4], "cpu_s": 5}

and its row is

    {"id": ..., "status": ..., "letters": "pf", "digest": "...", "cpu_s": 0.03}

with one letter per test (`p` passed, `f` failed, `e` error, `s` skipped, `x` expected failure, `X` unexpected pass,
`?` not reported), a digest of the edited statement's bytecode, and one of these statuses:

    ran          every test reported
    stuck        stopped at the limit of processor time or of real time
    crashed      the process ended before its last test
    equivalent   the bytecode is the same
    unswappable  a swap of code does not show the edit: class bodies, defaults, decorators, functions that are gone
    lost         a test of the candidate was not collected
"""

import ast
import functools
import gc
import hashlib
import json
import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

Place = tuple[tuple[str, int], ...]
Swap = tuple[types.FunctionType, types.CodeType]

LETTERS = {"passed": "p", "failed": "f", "error": "e", "skipped": "s", "xfailed": "x", "xpassed": "X"}
RANK = "pXxsfe"
"""Letters, the worst last: a test with several phases or subtests gets the worst of theirs."""


def parts_of(code: types.CodeType) -> Iterator[tuple[Place, types.CodeType]]:
    """Yield every code object inside `code` with its place: the names that lead to it, and how often each came
    before."""
    seen: dict[str, int] = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            number = seen[constant.co_name] = seen.get(constant.co_name, -1) + 1
            place = (constant.co_name, number)
            yield (place,), constant
            for inner, part in parts_of(constant):
                yield (place, *inner), part


def fingerprint(code: types.CodeType, nested: bool = True) -> tuple[Any, ...]:
    """What the code does, without line numbers: a tuple that is equal for equal bytecode."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            constants.append(fingerprint(constant) if nested else "code")
        elif isinstance(constant, frozenset):
            constants.append(("frozenset", *sorted(map(repr, constant))))
        else:
            constants.append((type(constant).__name__, repr(constant)))
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_code, tuple(constants), names, counts, getattr(code, "co_exceptiontable", b""))


def future_flags(path: str) -> int:
    """The compiler flags for the `from __future__ import`s of the file."""
    import __future__

    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    names = [
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    ]
    return sum(getattr(__future__, name).compiler_flag for name in names)


@functools.cache
def real_path(path: str) -> str:
    """The path with links resolved."""
    return os.path.realpath(path)


class Swapper:
    """Knows the live functions, and turns a statement's text into code for them."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.flags: dict[str, int] = {}
        self.live: dict[tuple[str, str, int], list[types.FunctionType]] = {}
        gc.collect()
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:
                code = thing.__code__
                key = (real_path(code.co_filename), code.co_name, code.co_firstlineno)
                self.live.setdefault(key, []).append(thing)

    def compile(self, candidate: dict[str, Any], text: str) -> types.CodeType:
        path = os.path.join(self.root, candidate["path"])
        if path not in self.flags:
            self.flags[path] = future_flags(path)
        padded = "\n" * (candidate["line"] - 1) + text
        code: types.CodeType = compile(padded, path, "exec", flags=self.flags[path], dont_inherit=True)
        return code

    def plan(self, candidate: dict[str, Any]) -> tuple[str, list[Swap], str]:
        """Return a status, or "ran" with the swaps `[(function, code), ...]`, and the digest of the bytecode."""
        before, after = (self.compile(candidate, candidate[name]) for name in ("before", "after"))
        digest = hashlib.sha256(repr((candidate["path"], candidate["line"], fingerprint(after))).encode()).hexdigest()
        if fingerprint(before) == fingerprint(after):
            return "equivalent", [], digest[:16]
        if fingerprint(before, nested=False) != fingerprint(after, nested=False):
            return "unswappable", [], digest[:16]  # a default, a decorator, or the statement itself
        swaps: list[Swap] = []
        reached: set[Place] = set()
        new = dict(parts_of(after))
        for place, code in parts_of(before):  # enclosing functions come first
            if place in new and fingerprint(code) == fingerprint(new[place]):
                continue
            functions = self.live.get((real_path(code.co_filename), code.co_name, code.co_firstlineno), [])
            if functions and (place not in new or code.co_freevars != new[place].co_freevars):
                return "unswappable", [], digest[:16]
            if functions:
                swaps += [(function, new[place]) for function in functions]
                reached.add(place)
                continue
            own = place not in new or fingerprint(code, nested=False) != fingerprint(new[place], nested=False)
            # The new code of an enclosing function recreates it; without one it is a class body, or gone.
            if own and not any(place[:depth] in reached for depth in range(1, len(place))):
                return "unswappable", [], digest[:16]
        return "ran", swaps, digest[:16]


class Screener:
    """The pytest plugin: collects tests, then screens candidates instead of running the suite."""

    def __init__(self, order: dict[str, Any], output: int) -> None:
        self.order = order
        self.output = output
        self.letters: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the worst status of a test's phases and subtests."""
        if report.when == "call" or report.outcome != "passed":
            expected = hasattr(report, "wasxfail")
            status = report.outcome
            if expected and status in ("skipped", "passed"):
                status = "xfailed" if status == "skipped" else "xpassed"
            elif status == "failed" and report.when != "call":
                status = "error"
            letter, before = LETTERS[status], self.letters.get(report.nodeid, RANK[0])
            self.letters[report.nodeid] = max(letter, before, key=RANK.index)

    def pytest_runtestloop(self, session: Any) -> None:
        items = {item.nodeid: item for item in session.items}
        collected = [items.get(test) for test in self.order["tests"]]
        swapper = Swapper(os.path.realpath(os.getcwd()))
        self.write({"collected": sum(item is not None for item in collected)})
        gc.collect()
        gc.freeze()  # forks then share the pages of everything that lives
        for candidate in self.order["candidates"]:
            self.write(self.screen(candidate, collected, swapper))
        os._exit(0)

    def write(self, row: dict[str, Any]) -> None:
        data = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self.output, data) :]

    def screen(self, candidate: dict[str, Any], collected: list[Any], swapper: Swapper) -> dict[str, Any]:
        chosen = [collected[number] for number in candidate["tests"]]
        row = {"id": candidate["id"], "letters": "", "cpu_s": 0.0, "digest": ""}
        try:
            status, swaps, row["digest"] = swapper.plan(candidate)
        except (SyntaxError, ValueError, RecursionError, OSError) as error:
            return {**row, "status": "crashed", "message": f"{type(error).__name__}: {error}"}
        if None in chosen:
            status = "lost"
        if status != "ran":
            return {**row, "status": status}
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                os.close(read)
                os.close(self.output)
                self.run(candidate, chosen, swaps, write)
            finally:
                os._exit(0)
        os.close(write)
        letters, in_time = self.listen(read, child, len(chosen))
        _, ending, usage = os.wait4(child, 0)
        cpu_s = usage.ru_utime + usage.ru_stime
        row |= {"letters": letters.ljust(len(chosen), "?"), "cpu_s": round(cpu_s, 4)}
        if len(letters) == len(chosen):
            return {**row, "status": "ran"}
        at_limit = os.WIFSIGNALED(ending) and os.WTERMSIG(ending) == signal.SIGXCPU
        return {**row, "status": "stuck" if at_limit or not in_time else "crashed"}

    def listen(self, read: int, child: int, count: int) -> tuple[str, bool]:
        """Read letters until the child closes the pipe or the deadline passes; then kill its whole process group."""
        deadline = time.monotonic() + self.order["wall_s"]
        letters = b""
        while len(letters) < count:
            ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(read, 65536) if ready else b""
            if not data:
                break
            letters += data
        os.close(read)
        in_time = time.monotonic() < deadline
        try:
            os.killpg(child, signal.SIGKILL)
        except OSError:
            os.kill(child, signal.SIGKILL)  # it ended before it had a group; it is not reaped yet, so the id is its own
        return letters.decode(), in_time

    def run(self, candidate: dict[str, Any], chosen: list[Any], swaps: list[Swap], write: int) -> None:
        """In the child: swap the code and run the tests. Each test's letter is sent as soon as it is known."""
        seconds = candidate["cpu_s"]
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (self.order["memory_bytes"], self.order["memory_bytes"]))
        for function, code in swaps:
            function.__code__ = code
        for number, item in enumerate(chosen):
            following = chosen[number + 1] if number + 1 < len(chosen) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            os.write(write, self.letters.get(item.nodeid, "?").encode())


def skip_tracebacks() -> None:
    """Do not write out tracebacks, which would take most of the time of a fork in which many tests fail."""
    import pytest

    if hasattr(pytest.Item, "_repr_failure_py"):
        pytest.Item._repr_failure_py = lambda *arguments, **options: ""  # type: ignore


def main() -> None:
    order = json.load(sys.stdin)
    output = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)  # the forks would mix what they print
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    import pytest

    skip_tracebacks()
    screener = Screener(order, output)
    status = pytest.main([*order["arguments"], *order["files"]], plugins=[screener])
    screener.write({"failed": f"pytest ended with status {int(status)} before any candidate"})


if __name__ == "__main__":
    main()
