"""Confirm bugs: for each, edit the files of the tree and fork; the fork imports the package and runs the tests.

The process that forks has imported pytest and what the tests import besides the tree, and no module of the package or
of its tests: apart from that it is a fresh interpreter. Its forks run the reporter of
`turnwise_swe/repositories/guest`, so that they report the same as a separate process would. The modules to import are
those that one fork has after a few tests without a bug; that fork also leaves bytecode of the pristine tree beside the
sources, and the others write none.

The order comes as JSON on stdin:

    reporter   source text of the reporter
    request    what the reporter reads, without `ids`, `files`, `word` and `descriptor`
    rehearsal  ids of tests to run without a bug; if there are none, each fork imports everything itself
    bugs       objects with `id`, `files` (path to text, in latin-1), `ids`, and the limits `cpu_s` and `wall_s`

One line of JSON per bug goes to stdout: `id`, the reporter's lines as `report`, and `cpu_s` of the fork. Files that a
fork adds are removed. A fork that changes other files is the last of its program, because it leaves another tree
behind.
"""

import ast
import contextlib
import gc
import importlib
import inspect
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import sys
import time
from typing import Any

NOT_FRESH = 3
"""Exit status of a process in which an import loaded a module of the tree."""
REHEARSAL_S = 120
POLL_S = 0.05


class Tree:
    """The working folder."""

    def __init__(self) -> None:
        self.root = os.path.realpath(".")
        self.stamps: dict[str, tuple[int, int] | None] = {}

    def read_stamps(self) -> dict[str, tuple[int, int] | None]:
        """Path to size and modification time of every file, and to None for every folder, which comes before its
        files."""
        stamps: dict[str, tuple[int, int] | None] = {}
        folders = [self.root]
        while folders:
            for entry in os.scandir(folders.pop()):
                stamps[entry.path] = None
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    about = entry.stat(follow_symlinks=False)
                    stamps[entry.path] = (about.st_size, about.st_mtime_ns)
        return stamps

    def edit(self, files: dict[str, bytes]) -> list[tuple[str, bytes, int]]:
        """Write files, and return what `restore` needs. Each is dated a second later than before, so that bytecode of
        its old text is not used."""
        before = []
        for path, content in files.items():
            with open(path, "rb") as file:
                before.append((path, file.read(), os.stat(path).st_mtime_ns))
            self.write(path, content, before[-1][2] + 10**9)
        return before

    def write(self, path: str, content: bytes, mtime_ns: int) -> None:
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def restore(self, before: list[tuple[str, bytes, int]]) -> bool:
        """Write the old files back and remove new ones. False if the tree is not as it was."""
        try:
            for path, content, mtime_ns in before:
                self.write(path, content, mtime_ns)
            stamps = self.read_stamps()
            added = [path for path in stamps if path not in self.stamps]
            for path in reversed(added):
                if stamps[path] is None:
                    os.rmdir(path)
                else:
                    os.remove(path)
                del stamps[path]
            return stamps == self.stamps
        except OSError:
            return False

    def holds(self, module: Any) -> bool:
        """Whether a module comes from the tree."""
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        return any(os.path.realpath(str(place)).startswith(self.root + os.sep) for place in places if place)


class Confirmer:
    """Carries out an order."""

    def __init__(self, order: dict[str, Any], output: int) -> None:
        self.order = order
        self.output = output
        self.tree = Tree()
        self.reporter = compile(order["reporter"], "<reporter>", "exec")
        self.scratch = os.environ.get("TMPDIR", "/tmp")

    def run(self) -> None:
        """Rehearse, then confirm in a process that imports no module of the tree."""
        names = self.rehearse() if self.order["rehearsal"] else []
        self.tree.stamps = self.tree.read_stamps()
        for chosen in (names, []):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    status = self.serve(chosen)
                finally:
                    os._exit(status)
            if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != NOT_FRESH:
                return

    def rehearse(self) -> list[str]:
        """Names of the modules that a run of tests imports from outside the tree, in the order of their import."""
        read, write = os.pipe()
        exit_now = os._exit
        pid = os.fork()
        if pid == 0:
            try:
                signal.alarm(REHEARSAL_S)
                os.close(read)
                sys.dont_write_bytecode = False

                def leave(status: int) -> None:
                    """The reporter's last object."""
                    plugins = {name.split(".")[0] for name in self.order["request"]["plugins"]}  # to be rewritten
                    names = [
                        name
                        for name, module in list(sys.modules.items())
                        if name != "__main__" and name.split(".")[0] not in plugins and not self.tree.holds(module)
                    ]
                    with open(write, "wb") as file:
                        file.write(json.dumps(names).encode())

                os._exit = leave  # type: ignore[assignment]
                self.report(self.order["rehearsal"], os.open(os.devnull, os.O_WRONLY), "")
            finally:
                exit_now(0)
        os.close(write)
        with open(read, "rb") as file:
            names = file.read()
        os.waitpid(pid, 0)
        return list(json.loads(names)) if names else []

    def serve(self, names: list[str]) -> int:
        """Import the modules and confirm each bug. Returns the exit status."""
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        if any(self.tree.holds(module) for module in list(sys.modules.values())):
            return NOT_FRESH
        share_trees({test.split("::")[0] for bug in self.order["bugs"] for test in bug["ids"]})
        gc.collect()
        gc.freeze()  # forks then share the pages of everything that lives
        for number, bug in enumerate(self.order["bugs"]):
            before = self.tree.edit({path: text.encode("latin-1") for path, text in bug["files"].items()})
            self.write(self.confirm(bug, os.path.join(self.scratch, f"fork{number}")))
            if not self.tree.restore(before):
                break
        return 0

    def write(self, row: dict[str, Any]) -> None:
        data = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self.output, data) :]

    def confirm(self, bug: dict[str, Any], home: str) -> dict[str, Any]:
        """Fork, and read what the reporter writes."""
        os.mkdir(home)
        word = os.urandom(16).hex()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                os.close(read)
                os.close(self.output)
                os.environ.update(HOME=home, TMPDIR=home)
                resource.setrlimit(resource.RLIMIT_CPU, (bug["cpu_s"], bug["cpu_s"] + 1))
                self.report(bug["ids"], write, word)
            finally:
                os._exit(1)
        os.close(write)
        content, is_late = self.listen(read, child, time.monotonic() + bug["wall_s"])
        _, ending, usage = os.wait4(child, 0)
        shutil.rmtree(home, ignore_errors=True)
        code = os.waitstatus_to_exitcode(ending)
        is_late = is_late or code == -signal.SIGXCPU
        cpu_s = round(usage.ru_utime + usage.ru_stime, 4)
        return {"id": bug["id"], "report": check_lines(content, word, code, is_late), "cpu_s": cpu_s}

    def listen(self, read: int, child: int, deadline: float) -> tuple[bytes, bool]:
        """What the child writes until it ends or the deadline passes; then its whole process group is killed."""
        parts, is_open, has_ended = [], True, False
        while not (has_ended or (is_late := time.monotonic() > deadline)):
            ready = is_open and select.select([read], [], [], POLL_S)[0]
            if ready:
                parts.append(os.read(read, 1 << 16))
                is_open = bool(parts[-1])
            else:  # a process that the tests left behind may hold the pipe open
                has_ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
                time.sleep(0 if is_open or has_ended else POLL_S / 50)
        os.close(read)
        try:
            os.killpg(child, signal.SIGKILL)
        except OSError:
            os.kill(child, signal.SIGKILL)  # it ended before it had a group; it is not reaped yet, so the id is its own
        return b"".join(parts), is_late

    def report(self, ids: list[str], descriptor: int, word: str) -> None:
        """Run the tests with the reporter, which ends the process."""
        files = list(dict.fromkeys(test.split("::")[0] for test in ids))
        request = {**self.order["request"], "ids": ids, "files": files, "word": word, "descriptor": descriptor}
        importlib.invalidate_caches()
        exec(self.reporter, {"__name__": "<reporter>", "REQUEST": request})


def share_trees(test_files: set[str]) -> None:
    """Make tracebacks parse each file only once. pytest parses the files of a traceback again for each failing test,
    which takes most of the time of a run in which many tests fail; test files, which no bug edits, are parsed here, the
    lines of their statements are found, and so is the file of each imported module."""
    code = sys.modules.get("_pytest._code.code")
    entry: Any = getattr(code, "TracebackEntry", None)
    if not hasattr(entry, "getsource"):
        return  # another version of pytest; only slower
    read, trees = entry.getsource, {}
    note_lines = getattr(sys.modules.get("_pytest._code.source"), "_statement_linenos", lambda tree: None)
    for path in test_files:
        with contextlib.suppress(OSError, SyntaxError, ValueError), open(path, "rb") as file:
            tree = trees[pathlib.Path(path).absolute()] = ast.parse(file.read())
            note_lines(tree)  # pytest keeps these on the syntax tree
    inspect.getmodule(share_trees.__code__)

    def read_source(self: Any, astcache: Any = None) -> Any:
        """Like pytest's own, with one cache for all tracebacks."""
        return read(self, trees)

    entry.getsource, entry.source = read_source, property(read_source)


def check_lines(content: bytes, word: str, code: int, is_late: bool) -> str:
    """The reporter's objects, one a line, and how its process ended, checked and reported as by the launcher of a
    run."""
    rows = []
    for number, line in enumerate(content.split(b"\n")[:-1]):
        start = b"%s %d " % (word.encode(), number)
        if not line.startswith(start):
            what = "something else wrote to the reporter's descriptor"
            return json.dumps({"kind": "tampered", "what": what})
        rows.append(line[len(start) :].decode("ascii"))
    return "\n".join([*rows, json.dumps({"kind": "exit", "code": code, "is_late": is_late, "output": ""})])


def main() -> None:
    order = json.load(sys.stdin)
    output = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)  # the forks would mix what they print
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    importlib.import_module("pytest")
    Confirmer(order, output).run()


if __name__ == "__main__":
    main()
